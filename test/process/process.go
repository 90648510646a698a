package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// driverPackage is the command that is built.
const driverPackage = "github.com/holdfast-dev/holdfast/cmd/holdfast-driver"

// socketWithin is how long a socket may take to be served.
const socketWithin = time.Minute

// Build builds the driver from this repository into a folder and returns the
// binary's path.
func Build(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "holdfast-driver")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, driverPackage)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", driverPackage, err, out)
	}
	return bin, nil
}

// Options say what to start.
type Options struct {
	// Binary is the driver's, as Build made it.
	Binary string
	// Dir is the folder for the socket.
	Dir string
	// Args go behind those that every such process gets.
	Args []string
	// Wrap goes before the binary: a program that ends by executing the rest.
	Wrap []string
	// Log takes what the process logs; nil: nobody.
	Log io.Writer
}

// Driver is a running process of the driver.
type Driver struct {
	// Endpoint is its CSI socket, "unix://…".
	Endpoint string

	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of the process, once ended is closed
}

// StartController starts the controller half for a simulated EC2 at a URL, and
// waits until its socket is served.
func StartController(ctx context.Context, o Options, ec2 string) (*Driver, error) {
	return start(ctx, o, "controller", []string{"AWS_ENDPOINT_URL_EC2=" + ec2, "AWS_EC2_METADATA_DISABLED=true",
		"AWS_ACCESS_KEY_ID=AKIAHOLDFASTCONTROLLER", "AWS_SECRET_ACCESS_KEY=not-checked"})
}

// StartNode starts the node half, which does not register with a kubelet, for a
// simulated instance metadata service at a URL.
func StartNode(ctx context.Context, o Options, imds string) (*Driver, error) {
	o.Args = append([]string{"--registration-dir="}, o.Args...)
	return start(ctx, o, "node", []string{"AWS_EC2_METADATA_SERVICE_ENDPOINT=" + imds})
}

func start(ctx context.Context, o Options, half string, env []string) (*Driver, error) {
	socket := filepath.Join(o.Dir, half+".sock")
	argv := slices.Concat(o.Wrap, []string{o.Binary, half, "--endpoint=unix://" + socket, "--health-address="}, o.Args)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = o.Log, o.Log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Env = slices.Concat(os.Environ(), []string{"AWS_REGION=us-east-1", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null"}, env)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", half, err)
	}
	d := &Driver{Endpoint: "unix://" + socket, cmd: cmd, ended: make(chan struct{})}
	go func() {
		d.err = cmd.Wait()
		close(d.ended)
	}()
	if err := Served(ctx, d.Endpoint, d.ended); err != nil {
		d.Kill()
		return nil, fmt.Errorf("%s: %w", half, err)
	}
	return d, nil
}

// PID is the process's id.
func (d *Driver) PID() int { return d.cmd.Process.Pid }

// Kill ends the process with SIGKILL, as a machine that loses its power does,
// and waits until it is gone.
func (d *Driver) Kill() {
	_ = d.cmd.Process.Kill() // an error means that it has ended
	<-d.ended
}

// Stop ends the process with SIGTERM, as kubelet does, and returns how it ended.
func (d *Driver) Stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	<-d.ended
	if d.err != nil {
		return fmt.Errorf("stop the driver: %w", d.err)
	}
	return nil
}

// Served waits until a unix socket is served. It fails when ended is closed
// (nil: never) or ctx ends.
func Served(ctx context.Context, endpoint string, ended <-chan struct{}) error {
	path, ok := cutUnix(endpoint)
	if !ok {
		return fmt.Errorf("endpoint %q: want unix:// and the path of a socket", endpoint)
	}
	ctx, cancel := context.WithTimeout(ctx, socketWithin)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("unix", path)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ended:
			return errors.New("the process ended before it served its socket")
		case <-ctx.Done():
			return fmt.Errorf("nobody serves %s: %w", path, err)
		case <-tick.C:
		}
	}
}

func cutUnix(endpoint string) (string, bool) {
	const scheme = "unix://"
	if len(endpoint) <= len(scheme) || endpoint[:len(scheme)] != scheme {
		return "", false
	}
	return endpoint[len(scheme):], true
}

// Client is a connection to a CSI socket.
type Client struct {
	csi.ControllerClient
	csi.NodeClient
	// Conn is the connection, for the other services of the socket.
	Conn *grpc.ClientConn
}

// Dial makes a client for an endpoint.
func Dial(endpoint string) (*Client, error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", endpoint, err)
	}
	return &Client{ControllerClient: csi.NewControllerClient(conn), NodeClient: csi.NewNodeClient(conn), Conn: conn}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.Conn.Close() }

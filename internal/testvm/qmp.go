package testvm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
)

// monitor speaks QEMU's machine protocol (QMP) on one connection. One caller
// at a time.
type monitor struct {
	conn   net.Conn
	reader *bufio.Reader
}

// message is anything that QEMU says.
type message struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	Event string         `json:"event"`
	Data  map[string]any `json:"data"`
}

// newMonitor does the greeting.
func newMonitor(conn net.Conn) (*monitor, error) {
	m := &monitor{conn: conn, reader: bufio.NewReader(conn)}
	if _, err := m.reader.ReadBytes('\n'); err != nil {
		return nil, fmt.Errorf("greeting of QEMU: %w", err)
	}
	return m, m.call("qmp_capabilities", nil)
}

// call runs a command and waits for its answer; events are passed over.
func (m *monitor) call(command string, arguments map[string]any) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := m.conn.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	for {
		answer, err := m.read()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", command, err)
		case answer.Error != nil:
			return fmt.Errorf("%s: %s", command, answer.Error.Desc)
		case answer.Return != nil:
			return nil
		}
	}
}

// waitDeleted waits until QEMU says that the device is gone.
func (m *monitor) waitDeleted(ctx context.Context, device string) error {
	stop := context.AfterFunc(ctx, func() { m.conn.Close() })
	defer stop()
	for {
		said, err := m.read()
		if err != nil {
			return errors.Join(fmt.Errorf("wait until %s is gone: %w", device, err), context.Cause(ctx))
		}
		if said.Event == "DEVICE_DELETED" && said.Data["device"] == device {
			return nil
		}
	}
}

func (m *monitor) read() (message, error) {
	line, err := m.reader.ReadBytes('\n')
	if err != nil {
		return message{}, err
	}
	var said message
	return said, json.Unmarshal(line, &said)
}

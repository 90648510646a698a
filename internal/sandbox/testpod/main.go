// Command testpod is what the Pods of the sandbox's own tests run.
//
//	testpod serve ADDRESS     answer every HTTP request with the host name
//	testpod get URL           print what an address answers
//	testpod instance URL      print the instance id that the metadata service tells
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testpod:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want a command and an address, got %q", args)
	}
	http.DefaultClient.Timeout = 5 * time.Second
	switch args[0] {
	case "serve":
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		fmt.Println("serving", args[1])
		return http.ListenAndServe(args[1], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, name)
		}))
	case "get":
		return get(args[1], nil)
	case "instance":
		return instance(args[1])
	}
	return fmt.Errorf("unknown command %q", args[0])
}

func get(url string, header http.Header) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header = header
	return fetch(req, os.Stdout)
}

// instance follows IMDSv2: first a token, then the question.
func instance(base string) error {
	req, err := http.NewRequest(http.MethodPut, base+"/latest/api/token", nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-aws-ec2-metadata-token-ttl-seconds", "60")
	var token limited
	if err := fetch(req, &token); err != nil {
		return err
	}
	return get(base+"/latest/meta-data/instance-id", http.Header{"X-Aws-Ec2-Metadata-Token": {string(token)}})
}

type limited []byte

func (l *limited) Write(b []byte) (int, error) {
	*l = append(*l, b...)
	return len(b), nil
}

func fetch(req *http.Request, w io.Writer) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", req.Method, req.URL, resp.Status)
	}
	_, err = io.Copy(w, resp.Body)
	return err
}

//go:build !linux

package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "sandbox: this needs Linux, whose namespaces the nodes are made of; this is %s: run it in a Linux virtual machine\n", runtime.GOOS)
	os.Exit(1)
}

// Command pause is the first process of every Pod: it holds the Pod's namespaces
// and reaps the processes that nobody else waits for. It stands in for
// registry.k8s.io/pause, which cannot be pulled where there is no registry.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err != nil && err != syscall.EINTR || err == nil && pid <= 0 {
				break
			}
		}
	}
}

package testenv

import (
	"fmt"
	"path/filepath"
)

// HowToLookAround says how a person goes on with a sandbox that is left running.
func (c *Cluster) HowToLookAround(name string) string {
	return fmt.Sprintf(`Look around:
  export KUBECONFIG=%s
  kubectl get pods,pvc,pv,volumeattachments -A      # kubectl of this version: %s
  kubectl -n %s logs deploy/holdfast-controller -c holdfast-driver
  curl -s %s/_sim/state                             # what EC2 knows
Stop it, leaving nothing behind:
  make sandbox-down SANDBOX=%s
`, c.Kubeconfig(), filepath.Join(c.Binaries(), "kubectl"), Namespace, c.EC2Endpoint(), name)
}

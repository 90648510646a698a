// Package usage tells how full the filesystems of claims are, as their nodes see
// them. Three sources are asked in turn; the next one only for the nodes that the
// one before did not tell of.
//
//	source        where                                    right
//	metrics       kubelet, /metrics: kubelet_volume_stats_*  nodes/metrics
//	summary       kubelet, /stats/summary                  nodes/stats
//	prometheus    one instant query, if configured         its own
//
// A kubelet is asked at its InternalIP over TLS, with a token of ServiceAccount: a
// node's owner can take what the kubelet is shown, and the manager's own rights are
// not for them. The certificate is verified too.
//
//	the token      has the rights of the table and no others, is asked to live for
//	               tokenLife, and is renewed when a fifth of that is left, or when a
//	               kubelet does not know it; it is written nowhere
//	no token       is counted and told once a read: no kubelet is asked, Prometheus is
//	not renewed    likewise, and the one of before is shown until it ends
//	one node       is asked once a read, for at most timeoutPerNode, and answers at
//	               most maxBodyBytes; what it says is never held as a whole
//	many nodes     at most nodesAtOnce at a time, over connections that are kept
//	a dead node    costs its own claims their sample, and no one else's
//	a redirect     is not followed: it would take the token along
//	a node         is believed of the claims alone whose volumes it has
//	Prometheus     that has two values of one figure has none
//	a claim        that no source tells of has no sample: unknown is not zero
package usage

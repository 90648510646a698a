package usage

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Names of the sources.
const (
	sourceMetrics    = "metrics"
	sourceSummary    = "summary"
	sourcePrometheus = "prometheus"
	sourceToken      = "token" // not a source itself: what asking kubelets takes
)

// Reader reads the usage of claims.
type Reader struct {
	kubelets   *http.Client
	tokens     *tokens
	prometheus *Prometheus // nil: none is configured
	clock      clock.PassiveClock
	errors     *prometheus.CounterVec
}

// Options are what a Reader works with. All but Prometheus must be given.
type Options struct {
	// Config is how the API server is reached.
	Config *rest.Config
	// Namespace is that of ServiceAccount.
	Namespace string
	Kubelet   KubeletOptions
	// Prometheus is asked about the claims of nodes that do not answer; nil: nobody is.
	Prometheus *Prometheus
	Clock      clock.PassiveClock
	Registry   prometheus.Registerer
}

// New makes a reader and registers its metric.
func New(o Options) (*Reader, error) {
	kubelets, err := kubeletClient(o.Config, o.Kubelet)
	if err != nil {
		return nil, err
	}
	tokens, err := newTokens(o.Config, o.Namespace, o.Clock)
	if err != nil {
		return nil, err
	}
	r := &Reader{kubelets: kubelets, tokens: tokens, prometheus: o.Prometheus, clock: o.Clock, errors: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_usage_source_errors_total",
		Help: "Questions about the usage of volumes that were not answered, by source: metrics and summary of a kubelet, prometheus, and token, which asking kubelets takes.",
	}, []string{"source"})}
	for _, source := range []string{sourceMetrics, sourceSummary, sourcePrometheus, sourceToken} {
		r.errors.WithLabelValues(source) // 0 is told too
	}
	o.Registry.MustRegister(r.errors)
	return r, nil
}

// Answer is what a read told.
type Answer struct {
	Samples map[types.NamespacedName]Sample
	// Failed are the nodes that told nothing, each with the reason. That is Token
	// where none was asked.
	Failed map[string]error
	// Token is why there is none to ask kubelets with, or no new one yet; nil: there
	// is one, or no node was to be asked.
	Token error
	// Prometheus is why it told nothing; nil: it did, or was not asked.
	Prometheus error
}

// Read asks each of the nodes once, and Prometheus about those that do not answer.
func (r *Reader) Read(ctx context.Context, nodes []Node) Answer {
	a := Answer{Samples: map[types.NamespacedName]Sample{}, Failed: map[string]error{}}
	if len(nodes) == 0 {
		return a
	}
	token, err := r.tokens.get(ctx)
	if a.Token = err; err != nil {
		r.errors.WithLabelValues(sourceToken).Inc()
	}
	if token != "" {
		r.askKubelets(ctx, nodes, token, &a)
	} else {
		for _, n := range nodes {
			a.Failed[n.Name] = err
		}
	}
	if len(a.Failed) > 0 && r.prometheus != nil && ctx.Err() == nil {
		f, err := r.prometheus.read(ctx)
		if a.Prometheus = err; err != nil {
			r.errors.WithLabelValues(sourcePrometheus).Inc()
		}
		r.take(a.Samples, f, func(claim types.NamespacedName) bool {
			_, told := a.Samples[claim] // what a node said itself is newer
			return !told && slices.ContainsFunc(nodes, func(n Node) bool { return a.Failed[n.Name] != nil && n.has(claim) })
		})
	}
	return a
}

// askKubelets asks each of the nodes once, several at a time.
func (r *Reader) askKubelets(ctx context.Context, nodes []Node, token string, a *Answer) {
	var mu sync.Mutex
	var each sync.WaitGroup
	places := make(chan struct{}, nodesAtOnce)
	for _, n := range nodes {
		places <- struct{}{}
		each.Go(func() {
			defer func() { <-places }()
			f, err := r.node(ctx, n, token)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				a.Failed[n.Name] = err
				return
			}
			r.take(a.Samples, f, n.has)
		})
	}
	each.Wait()
}

// node asks one kubelet.
func (r *Reader) node(ctx context.Context, n Node, token string) (found, error) {
	if n.Address == "" {
		r.errors.WithLabelValues(sourceMetrics).Inc()
		return nil, errors.New("the node has no InternalIP at which its kubelet could be asked")
	}
	ctx, cancel := context.WithTimeout(ctx, timeoutPerNode)
	defer cancel()
	f, err := get(ctx, r.kubelets, "https://"+n.Address+"/metrics", token, readMetrics)
	if err == nil && len(f) > 0 {
		return f, nil
	}
	if err != nil {
		r.errors.WithLabelValues(sourceMetrics).Inc()
		var status *statusError
		if errors.As(err, &status) && status.code == http.StatusUnauthorized {
			r.tokens.refused(token)
			return nil, err
		}
		if ctx.Err() != nil { // its time is up: it would not answer the other one either
			return nil, err
		}
	}
	f, second := get(ctx, r.kubelets, "https://"+n.Address+"/stats/summary", token, readSummary)
	if second != nil {
		r.errors.WithLabelValues(sourceSummary).Inc()
		return nil, errors.Join(err, second)
	}
	return f, nil
}

// take makes samples of what was found of the claims that are asked about.
func (r *Reader) take(samples map[types.NamespacedName]Sample, f found, asked func(types.NamespacedName) bool) {
	now := r.clock.Now()
	for claim, of := range f {
		if !asked(claim) {
			continue
		}
		samples[claim] = Sample{At: now, Bytes: amount(of.capacity, of.available), Inodes: amount(of.inodes, of.inodesFree)}
	}
}

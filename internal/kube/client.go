package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-dev/holdfast/internal/version"
)

// ErrNoCluster says that the process runs in no Pod, or in one without a
// ServiceAccount's token, so that there is no API server to ask.
var ErrNoCluster = errors.New("no API server: the process runs in no Pod of a cluster, or its Pod has no ServiceAccount token")

// Client talks to the API server.
type Client struct {
	core, storage rest.Interface
}

// InCluster returns a client with the rights of the Pod's ServiceAccount;
// ErrNoCluster outside of a cluster.
func InCluster() (*Client, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNoCluster, err)
	}
	return New(config)
}

// New returns a client for the API server of a configuration.
func New(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), storagev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	base := rest.CopyConfig(config)
	base.UserAgent = "holdfast-driver/" + version.Version
	base.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	// Lists of nodes are several times smaller this way, to send and to read.
	base.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	base.ContentType = "application/json"
	// Many nodes may come up at once; client-go's own 5 a second would keep the
	// last of 500 waiting for over a minute.
	base.QPS, base.Burst = 50, 100
	transport, err := rest.HTTPClientFor(base)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	of := func(path string, group schema.GroupVersion) (rest.Interface, error) {
		c := rest.CopyConfig(base)
		c.APIPath, c.GroupVersion = path, &group
		return rest.RESTClientForConfigAndClient(c, transport)
	}
	core, coreErr := of("/api", corev1.SchemeGroupVersion)
	storage, storageErr := of("/apis", storagev1.SchemeGroupVersion)
	if err := errors.Join(coreErr, storageErr); err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return &Client{core: core, storage: storage}, nil
}

// node reads one Node.
func (c *Client) node(ctx context.Context, name string) (*corev1.Node, error) {
	var n corev1.Node
	if err := c.core.Get().Resource("nodes").Name(name).Do(ctx).Into(&n); err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	return &n, nil
}

// csiNode reads one CSINode; nil where there is none.
func (c *Client) csiNode(ctx context.Context, name string) (*storagev1.CSINode, error) {
	var n storagev1.CSINode
	err := c.storage.Get().Resource("csinodes").Name(name).Do(ctx).Into(&n)
	switch {
	case err == nil:
		return &n, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	}
	return nil, fmt.Errorf("read CSINode %s: %w", name, err)
}

// listWatch lists and watches a cluster-scoped resource; list makes an empty list.
func listWatch(c rest.Interface, resource string, list func() runtime.Object) *cache.ListWatch {
	request := func(options *metav1.ListOptions) *rest.Request {
		return c.Get().Resource(resource).VersionedParams(options, metav1.ParameterCodec)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			out := list()
			return out, request(&options).Do(ctx).Into(out)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return request(&options).Watch(ctx)
		},
	}
}

// informer caches a resource; keep takes what is not read away from each object.
func informer[T runtime.Object](c rest.Interface, resource string, list func() runtime.Object, example T, keep func(T) T) (cache.SharedInformer, error) {
	i := cache.NewSharedInformer(listWatch(c, resource, list), example, 0)
	err := i.SetTransform(func(o any) (any, error) {
		if typed, ok := o.(T); ok {
			return keep(typed), nil
		}
		return o, nil // a tombstone
	})
	return i, err
}

// nodeInformer caches Nodes: name, taints, and the label of the instance type.
func (c *Client) nodeInformer() (cache.SharedInformer, error) {
	return informer(c.core, "nodes", func() runtime.Object { return &corev1.NodeList{} }, &corev1.Node{}, func(n *corev1.Node) *corev1.Node {
		kept := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}}
		kept.Spec.Taints = n.Spec.Taints
		if t, ok := n.Labels[corev1.LabelInstanceTypeStable]; ok {
			kept.Labels = map[string]string{corev1.LabelInstanceTypeStable: t}
		}
		return kept
	})
}

// csiNodeInformer caches CSINodes: name, and what one driver has registered.
func (c *Client) csiNodeInformer(driver string) (cache.SharedInformer, error) {
	return informer(c.storage, "csinodes", func() runtime.Object { return &storagev1.CSINodeList{} }, &storagev1.CSINode{},
		func(n *storagev1.CSINode) *storagev1.CSINode {
			kept := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name, ResourceVersion: n.ResourceVersion}}
			for _, d := range n.Spec.Drivers {
				if d.Name == driver {
					kept.Spec.Drivers = []storagev1.CSINodeDriver{{Name: d.Name, Allocatable: d.Allocatable}}
				}
			}
			return kept
		})
}

// attachmentInformer caches the VolumeAttachments of one driver on one node;
// of all others it keeps the name alone. (The API server selects them by name
// and namespace only.)
func (c *Client) attachmentInformer(driver, node string) (cache.SharedInformer, error) {
	return informer(c.storage, "volumeattachments", func() runtime.Object { return &storagev1.VolumeAttachmentList{} }, &storagev1.VolumeAttachment{},
		func(a *storagev1.VolumeAttachment) *storagev1.VolumeAttachment {
			kept := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: a.Name, ResourceVersion: a.ResourceVersion}}
			if a.Spec.Attacher == driver && a.Spec.NodeName == node {
				kept.Spec = a.Spec
			}
			return kept
		})
}

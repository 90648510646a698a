package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Twin is a copy of an object that the API server has, of another name and with a
// UID of its own, to be stored beside it.
func Twin[T client.Object](of T, namespace, name string) T {
	twin := of.DeepCopyObject().(T)
	twin.SetNamespace(namespace)
	twin.SetName(name)
	twin.SetUID(uuid.NewUUID())
	twin.SetResourceVersion("")
	return twin
}

// storers are how many objects are on their way to etcd at once.
const storers = 8

// etcd is asked over as many connections, which stay for as long as it is asked.
// One that was opened and then not needed has never sent a byte, and etcd does
// not stop before it has learned what such a one speaks: it has to end by itself.
var etcd = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: storers, IdleConnTimeout: time.Second}}

// Store writes twins into the API server's etcd as it would store them. Whoever
// reads them from the API server sees no difference, and to have it make tens of
// thousands, three requests each, takes two cores the better part of half an hour.
//
// Each has a revision of its own, as all that the API server writes: an informer
// that lists in the midst of one revision never learns of the rest of it.
func (s *Server) Store(ctx context.Context, p *Progress, objects []client.Object) error {
	var stored atomic.Int64
	return Parallel(ctx, storers, len(objects), func(ctx context.Context, i int) error {
		if err := s.store(ctx, objects[i]); err != nil {
			return fmt.Errorf("store %s in etcd: %w", objects[i].GetName(), err)
		}
		if n := stored.Add(1); n%100 == 0 {
			p.Often("%d of %d objects are stored", n, len(objects))
		}
		return nil
	})
}

// put is etcd's PutRequest, as its gateway takes it: bytes in base64.
type put struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// store writes an object.
// https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/
func (s *Server) store(ctx context.Context, o client.Object) error {
	key, err := s.storedAs(o)
	if err != nil {
		return err
	}
	value, err := json.Marshal(o)
	if err != nil {
		return err
	}
	body, err := json.Marshal(put{[]byte(key), value})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Env.ControlPlane.Etcd.URL.JoinPath("v3", "kv", "put").String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := etcd.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", res.Status, text)
	}
	return nil
}

// storedAs is the key under which the API server stores an object, which is made
// to say of what kind it is. Kubernetes' own are stored by resource, others by
// group and resource.
func (s *Server) storedAs(o client.Object) (string, error) {
	kind, err := apiutil.GVKForObject(o, s.Client.Scheme())
	if err != nil {
		return "", err
	}
	mapping, err := s.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return "", err
	}
	o.GetObjectKind().SetGroupVersionKind(kind)
	group := kind.Group
	if clientgoscheme.Scheme.Recognizes(kind) {
		group = ""
	}
	return path.Join("/registry", group, mapping.Resource.Resource, o.GetNamespace(), o.GetName()), nil
}

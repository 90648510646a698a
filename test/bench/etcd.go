package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"

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

// perTransaction is how many objects are stored at once: etcd takes 128 operations
// and 1.5 MiB.
const perTransaction = 100

// Store writes twins into the API server's etcd as it would store them. Whoever
// reads them from the API server sees no difference, and to have it make tens of
// thousands, three requests each, takes two cores the better part of half an hour.
func (s *Server) Store(ctx context.Context, p *Progress, objects []client.Object) error {
	stored := 0
	for some := range slices.Chunk(objects, perTransaction) {
		if err := s.store(ctx, some); err != nil {
			return fmt.Errorf("store %d objects in etcd: %w", len(some), err)
		}
		stored += len(some)
		p.Often("%d of %d objects are stored", stored, len(objects))
	}
	return nil
}

// put is etcd's PutRequest, as its gateway takes it: bytes in base64.
type put struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// operation is one of a transaction.
type operation struct {
	Put put `json:"requestPut"`
}

// store writes some objects in one transaction.
// https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/
func (s *Server) store(ctx context.Context, objects []client.Object) error {
	var transaction struct {
		Success []operation `json:"success"`
	}
	for _, o := range objects {
		key, err := s.storedAs(o)
		if err != nil {
			return err
		}
		value, err := json.Marshal(o)
		if err != nil {
			return err
		}
		transaction.Success = append(transaction.Success, operation{put{[]byte(key), value}})
	}
	body, err := json.Marshal(transaction)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Env.ControlPlane.Etcd.URL.JoinPath("v3", "kv", "txn").String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Responses []json.RawMessage `json:"responses"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || len(answer.Responses) != len(objects) {
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

package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// patience bounds waits for what takes milliseconds.
const patience = 10 * time.Second

// change is an entry of the log that watches read.
type change struct {
	resource, kind string // kind: ADDED, MODIFIED, DELETED
	version        int
	object         metav1.Object
}

// apiServer is as much of an API server as this package asks: lists, watches,
// reads, JSON patches of taints, and creation of events, over HTTP.
type apiServer struct {
	t       *testing.T
	mu      sync.Mutex
	moved   *sync.Cond
	version int
	objects map[string]map[string]metav1.Object // by resource, by name
	log     []change
	patches []string // names of nodes, one entry a patch that was asked for
	taken   int      // how many of them changed a node
	refuse  func(r *http.Request) *apierrors.StatusError
	silent  string // the resource whose watches tell nothing for now
	closed  bool
}

func startAPIServer(t *testing.T) (*apiServer, *Client) {
	t.Helper()
	s := &apiServer{t: t, objects: map[string]map[string]metav1.Object{"nodes": {}, "csinodes": {}, "volumeattachments": {}, "events": {}}}
	s.moved = sync.NewCond(&s.mu)
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		s.mu.Lock()
		s.closed = true
		s.moved.Broadcast()
		s.mu.Unlock()
		srv.CloseClientConnections()
		srv.Close()
	})
	client, err := New(&rest.Config{Host: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

func resourceOf(o metav1.Object) string {
	switch o.(type) {
	case *corev1.Node:
		return "nodes"
	case *storagev1.CSINode:
		return "csinodes"
	case *storagev1.VolumeAttachment:
		return "volumeattachments"
	}
	return "events"
}

// put adds or changes an object.
func (s *apiServer) put(o metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(o)
}

func (s *apiServer) putLocked(o metav1.Object) {
	resource, kind := resourceOf(o), "ADDED"
	if _, there := s.objects[resource][o.GetName()]; there {
		kind = "MODIFIED"
	}
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[resource][o.GetName()] = o
	s.log = append(s.log, change{resource, kind, s.version, o})
	s.moved.Broadcast()
}

func (s *apiServer) remove(o metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := resourceOf(o)
	delete(s.objects[resource], o.GetName())
	s.version++
	s.log = append(s.log, change{resource, "DELETED", s.version, o})
	s.moved.Broadcast()
}

// node is a copy of a Node.
func (s *apiServer) node(name string) *corev1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects["nodes"][name].(*corev1.Node).DeepCopy()
}

func (s *apiServer) patched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.patches)
}

// changed is how many patches were taken: one whose test of what is there fails is not.
func (s *apiServer) changed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// refusing has requests refused from now on, as refuse says; nil: none.
func (s *apiServer) refusing(refuse func(r *http.Request) *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

func (s *apiServer) events() []*corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*corev1.Event
	for _, o := range s.objects["events"] {
		out = append(out, o.(*corev1.Event))
	}
	return out
}

// eventually waits until the server's state is as wanted.
func (s *apiServer) eventually(what string, holds func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: not after %v", what, patience)
		}
		<-time.After(time.Millisecond)
	}
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refuse := s.refuse
	s.mu.Unlock()
	if refuse != nil {
		if status := refuse(r); status != nil {
			answer(w, int(status.ErrStatus.Code), status.ErrStatus)
			return
		}
	}
	resource, name := path.Base(r.URL.Path), ""
	if _, isResource := s.objects[resource]; !isResource {
		resource, name = path.Base(path.Dir(r.URL.Path)), path.Base(r.URL.Path)
	}
	q := r.URL.Query()
	switch {
	case q.Get("sendInitialEvents") != "":
		status := apierrors.NewInvalid(schema.GroupKind{}, "sendInitialEvents", nil).ErrStatus // as before Kubernetes 1.34
		answer(w, int(status.Code), status)
	case r.Method == http.MethodGet && q.Get("watch") != "":
		s.watch(w, r, resource)
	case r.Method == http.MethodGet && name == "":
		s.list(w, resource)
	case r.Method == http.MethodPost:
		s.create(w, r)
	default:
		s.one(w, r, resource, name)
	}
}

func (s *apiServer) list(w http.ResponseWriter, resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []metav1.Object{}
	for _, o := range s.objects[resource] {
		items = append(items, o)
	}
	kinds := map[string][2]string{"nodes": {"v1", "NodeList"}, "csinodes": {"storage.k8s.io/v1", "CSINodeList"}, "volumeattachments": {"storage.k8s.io/v1", "VolumeAttachmentList"}}
	answer(w, http.StatusOK, map[string]any{
		"apiVersion": kinds[resource][0], "kind": kinds[resource][1],
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(s.version)}, "items": items,
	})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource string) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	defer contextWake(r, s)()
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	for next := 0; r.Context().Err() == nil && !s.closed; {
		for ; next < len(s.log); next++ {
			c := s.log[next]
			if c.resource != resource || c.resource == s.silent || c.version <= from {
				continue
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"type": c.kind, "object": withKind(c.object)})
		}
		w.(http.Flusher).Flush()
		s.moved.Wait()
	}
}

// contextWake wakes a watch whose client has gone.
func contextWake(r *http.Request, s *apiServer) func() {
	done := make(chan struct{})
	go func() {
		select {
		case <-r.Context().Done():
			s.mu.Lock()
			s.moved.Broadcast()
			s.mu.Unlock()
		case <-done:
		}
	}()
	return func() { close(done) }
}

func (s *apiServer) create(w http.ResponseWriter, r *http.Request) {
	var e corev1.Event
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		s.t.Errorf("event: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.objects["events"][e.Name]; there {
		status := apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, e.Name).ErrStatus
		answer(w, int(status.Code), status)
		return
	}
	s.putLocked(&e)
	answer(w, http.StatusCreated, withKind(&e))
}

func (s *apiServer) one(w http.ResponseWriter, r *http.Request, resource, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPatch {
		s.patches = append(s.patches, name)
	}
	o, there := s.objects[resource][name]
	if !there {
		status := apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name).ErrStatus
		answer(w, int(status.Code), status)
		return
	}
	if r.Method == http.MethodPatch {
		changed, status := patchTaints(r, o.(*corev1.Node).DeepCopy())
		if status != nil {
			answer(w, int(status.ErrStatus.Code), status.ErrStatus)
			return
		}
		s.putLocked(changed)
		s.taken++
		o = changed
	}
	answer(w, http.StatusOK, withKind(o))
}

// patchTaints applies a JSON patch that speaks of /spec/taints alone.
func patchTaints(r *http.Request, n *corev1.Node) (*corev1.Node, *apierrors.StatusError) {
	var operations []struct {
		Op, Path string
		Value    []corev1.Taint
	}
	invalid := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", schema.GroupResource{Resource: "nodes"}, n.Name, "", 0, true)
	if err := json.NewDecoder(r.Body).Decode(&operations); err != nil || r.Header.Get("Content-Type") != "application/json-patch+json" {
		return nil, apierrors.NewBadRequest(fmt.Sprint("patch: ", err))
	}
	for _, o := range operations {
		switch {
		case o.Path != "/spec/taints":
			return nil, apierrors.NewBadRequest("path " + o.Path)
		case o.Op == "test" && !reflect.DeepEqual(o.Value, n.Spec.Taints):
			return nil, invalid
		case o.Op == "replace":
			n.Spec.Taints = o.Value
		}
	}
	return n, nil
}

func withKind(o metav1.Object) any {
	kinds := map[string]metav1.TypeMeta{
		"nodes": {APIVersion: "v1", Kind: "Node"}, "events": {APIVersion: "v1", Kind: "Event"},
		"csinodes":          {APIVersion: "storage.k8s.io/v1", Kind: "CSINode"},
		"volumeattachments": {APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttachment"},
	}
	kind := kinds[resourceOf(o)]
	switch typed := o.(type) {
	case *corev1.Node:
		c := typed.DeepCopy()
		c.TypeMeta = kind
		return c
	case *storagev1.CSINode:
		c := typed.DeepCopy()
		c.TypeMeta = kind
		return c
	case *storagev1.VolumeAttachment:
		c := typed.DeepCopy()
		c.TypeMeta = kind
		return c
	case *corev1.Event:
		c := typed.DeepCopy()
		c.TypeMeta = kind
		return c
	}
	return o
}

func answer(w http.ResponseWriter, code int, body any) {
	if status, ok := body.(metav1.Status); ok {
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		body = status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func tainted(name string, keys ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, k := range keys {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k, Effect: corev1.TaintEffectNoExecute})
	}
	return n
}

func keysOf(n *corev1.Node) string {
	var keys []string
	for _, t := range n.Spec.Taints {
		keys = append(keys, t.Key)
	}
	return strings.Join(keys, " ")
}

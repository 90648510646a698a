package driver

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// logRequests gives each request a logger with its number and its ids, and
// writes one line where it ends: at V(0) when it failed, else at V(1). Fields
// that the CSI specification marks as secret are left out.
func logRequests(log logr.Logger) grpc.UnaryServerInterceptor {
	var count atomic.Int64
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		log := log.WithValues(append([]any{"requestID", count.Add(1)}, idsOf(req)...)...)
		log.V(1).Info("request", "method", info.FullMethod, "request", protosanitizer.StripSecrets(req).String())
		start := time.Now()
		answer, err := handle(logr.NewContext(ctx, log), req)
		took := time.Since(start).Round(time.Millisecond).String()
		if err != nil {
			log.Error(err, "request failed", "method", info.FullMethod, "code", status.Code(err).String(), "took", took)
		} else {
			log.V(1).Info("request done", "method", info.FullMethod, "took", took)
		}
		return answer, err
	}
}

// idsOf finds the ids in a request, as pairs for a log line.
func idsOf(req any) []any {
	var pairs []any
	add := func(key, value string) {
		if value != "" {
			pairs = append(pairs, key, value)
		}
	}
	if r, ok := req.(interface{ GetName() string }); ok {
		add("name", r.GetName())
	}
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		add("volumeID", r.GetVolumeId())
	}
	if r, ok := req.(interface{ GetSourceVolumeId() string }); ok {
		add("volumeID", r.GetSourceVolumeId())
	}
	if r, ok := req.(interface{ GetSnapshotId() string }); ok {
		add("snapshotID", r.GetSnapshotId())
	}
	if r, ok := req.(interface{ GetGroupSnapshotId() string }); ok {
		add("groupSnapshotID", r.GetGroupSnapshotId())
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		add("nodeID", r.GetNodeId())
	}
	return pairs
}

// recoverPanics answers INTERNAL for a request whose handler panics, so that
// one request does not end all others.
func recoverPanics(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if p := recover(); p != nil {
			logr.FromContextOrDiscard(ctx).Error(fmt.Errorf("panic: %v", p), "request panicked", "method", info.FullMethod, "stack", string(debug.Stack()))
			answer, err = nil, status.Errorf(codes.Internal, "%s panicked: %v", info.FullMethod, p)
		}
	}()
	return handle(ctx, req)
}

// locks lets one request at a time work on a key.
type locks struct {
	mu   sync.Mutex
	held map[string]string // key → method that holds it
}

func newLocks() *locks { return &locks{held: map[string]string{}} }

// take holds all keys or none; with none it names the key that is taken and by what.
func (l *locks) take(keys []string, method string) (busy, by string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		if by, taken := l.held[k]; taken {
			return k, by, false
		}
	}
	for _, k := range keys {
		l.held[k] = method
	}
	return "", "", true
}

func (l *locks) release(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		delete(l.held, k)
	}
}

// intercept answers ABORTED for a request whose key another one holds, as the
// CSI specification asks for "operation pending for volume".
func (l *locks) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	keys := lockKeys(req)
	if busy, by, ok := l.take(keys, info.FullMethod); !ok {
		return nil, status.Errorf(codes.Aborted, "%s is still under way for %s: try again when it has ended", by, busy)
	}
	defer l.release(keys)
	return handle(ctx, req)
}

// lockKeys says what a request must have for itself. Growing a volume may take
// minutes and does not hinder attaching or detaching it, so these have keys of
// their own, and so has a change of its attributes, which is joined with its
// growth where they meet; deletion takes all. On a node one volume can be published for
// several Pods at once, each at a path of its own, unless its access mode says
// one: then two Pods must not find each other absent at the same time.
func lockKeys(req any) []string {
	switch r := req.(type) {
	case *csi.CreateVolumeRequest:
		return []string{"volume name " + r.GetName()}
	case *csi.DeleteVolumeRequest:
		return []string{"attachment of " + r.GetVolumeId(), "size of " + r.GetVolumeId(), "attributes of " + r.GetVolumeId()}
	case *csi.ControllerPublishVolumeRequest:
		return []string{"attachment of " + r.GetVolumeId()}
	case *csi.ControllerUnpublishVolumeRequest:
		return []string{"attachment of " + r.GetVolumeId()}
	case *csi.ControllerExpandVolumeRequest:
		return []string{"size of " + r.GetVolumeId()}
	case *csi.ControllerModifyVolumeRequest:
		return []string{"attributes of " + r.GetVolumeId()}
	case *csi.CreateSnapshotRequest:
		return []string{"snapshot name " + r.GetName()}
	case *csi.DeleteSnapshotRequest:
		return []string{"snapshot " + r.GetSnapshotId()}
	case *csi.CreateVolumeGroupSnapshotRequest:
		return []string{"snapshot group " + r.GetName()} // the name is the id
	case *csi.DeleteVolumeGroupSnapshotRequest:
		return []string{"snapshot group " + r.GetGroupSnapshotId()}
	case *csi.NodeStageVolumeRequest:
		return []string{"node volume " + r.GetVolumeId()}
	case *csi.NodeUnstageVolumeRequest:
		return []string{"node volume " + r.GetVolumeId()}
	case *csi.NodeExpandVolumeRequest:
		return []string{"node volume " + r.GetVolumeId()}
	case *csi.NodePublishVolumeRequest:
		keys := []string{"node path " + r.GetTargetPath()}
		if r.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
			keys = append(keys, "the one writer of "+r.GetVolumeId())
		}
		return keys
	case *csi.NodeUnpublishVolumeRequest:
		return []string{"node path " + r.GetTargetPath()}
	}
	return nil
}

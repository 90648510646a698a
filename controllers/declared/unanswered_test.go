package declared

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// TestUnansweredWebhookIsTold: where a webhook that all changes of claims need does not
// answer, the API server gives an internal error, for as long. Who declared the size is
// to know.
func TestUnansweredWebhookIsTold(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	set, claim := setOfTwo("data=20Gi"), claimOf("data", 0, "10Gi")
	claim.Spec.StorageClassName = ptr.To("gp3")
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(set, &claim,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "db"}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gp3"}, Provisioner: "ebs.csi.aws.com", AllowVolumeExpansion: ptr.To(true)},
	).WithInterceptorFuncs(interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return apierrors.NewInternalError(errors.New(`failed calling webhook "nobody.example.com"`))
	}}).Build()
	recorder, clock := events.NewFakeRecorder(10), clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	r := New(Options{Client: c, World: &world.World{Cache: c, Live: c, Clock: clock}, Events: recorder, Clock: clock})
	for range 2 {
		if _, err := r.Reconcile(t.Context(), set); err == nil {
			t.Error("it is no error that a claim cannot be asked to grow")
		}
	}
	if n := len(recorder.Events); n != 1 {
		t.Fatalf("told %d times, want once", n)
	}
	if told := <-recorder.Events; !strings.Contains(told, ReasonBlocked) || !strings.Contains(told, `"nobody.example.com"`) {
		t.Errorf("told %q", told)
	}
}

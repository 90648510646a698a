//go:build e2e

package volumes

import (
	"testing"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

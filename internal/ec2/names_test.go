package ec2

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

func TestAllDeviceNames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range allDeviceNames {
		if seen[name] {
			t.Errorf("%s comes twice", name)
		}
		seen[name] = true
	}
	for name, want := range map[int]string{0: "/dev/xvdaa", 1: "/dev/xvdab", 25: "/dev/xvdaz", 26: "/dev/xvdba", 101: "/dev/xvddx", 102: "/dev/sdb", 126: "/dev/sdz"} {
		if got := allDeviceNames[name]; got != want {
			t.Errorf("name %d is %s, want %s: AWS's driver has that order", name, got, want)
		}
	}
	for n, name := range allDeviceNames {
		if ebs.IsClaimDevice(name) != (n < 102) {
			t.Errorf("%s: nodes tell volumes of claims from their own otherwise", name)
		}
	}
	if len(allDeviceNames) != 127 {
		t.Errorf("%d names, want 127", len(allDeviceNames))
	}
}

func TestDeviceNames(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))
	d := newDeviceNames(clk)
	reserve := func(on ebs.InstanceID, inUse ...string) string {
		t.Helper()
		used := map[string]bool{}
		for _, name := range inUse {
			used[name] = true
		}
		name, err := d.reserve(on, used)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	check := func(why, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %s, want %s", why, got, want)
		}
	}
	check("the first is free", reserve("i-1"), "/dev/xvdaa")
	check("the first is under way", reserve("i-1"), "/dev/xvdab")
	check("instances have names of their own", reserve("i-2"), "/dev/xvdaa")
	check("what the instance shows is in use", reserve("i-1", "/dev/xvdac"), "/dev/xvdad")
	d.release("i-1", "/dev/xvdaa", false)
	check("a refused name is free at once", reserve("i-1"), "/dev/xvdaa")
	d.release("i-1", "/dev/xvdaa", true)
	check("an accepted name stays taken though the instance may not show it", reserve("i-1", "/dev/xvdac"), "/dev/xvdae")
	clk.Step(nameLag + time.Second)
	check("until the instance must show it", reserve("i-1"), "/dev/xvdaa")

	for range allDeviceNames {
		d.release("i-4", reserve("i-4"), true)
	}
	check("with every name given lately one of them is better than none", reserve("i-4"), "/dev/xvdaa")
	clk.Step(time.Second)
	d.release("i-4", "/dev/xvdaa", true)
	check("that which was given longest ago, not the one that was just given", reserve("i-4"), "/dev/xvdab")

	d.release("i-4", "/dev/xvdab", true)
	clk.Step(nameLag + time.Second)
	d.release("i-5", reserve("i-5"), false)
	if len(d.taken["i-4"]) != 0 {
		t.Errorf("%d names of an instance that nobody asks for again are kept", len(d.taken["i-4"]))
	}

	all := map[string]bool{}
	for _, name := range allDeviceNames {
		all[name] = true
	}
	if _, err := d.reserve("i-3", all); !errors.Is(err, ebs.ErrAttachLimit) {
		t.Errorf("no name left: %v, want that the limit is reached", err)
	}
}

package machine

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// setUpSwitch makes the bridge in this network namespace.
func setUpSwitch(addresses []string) error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: Bridge}}
	if err := netlink.LinkAdd(bridge); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make bridge %s: %w", Bridge, err)
	}
	return setUpLink(Bridge, addresses)
}

// plugIn makes a cable between the bridge and eth0 of the machine whose first
// process, not yet running, has this pid.
func plugIn(name string, pid int) error {
	bridge, err := netlink.LinkByName(Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", Bridge, err)
	}
	attrs := netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index}
	cable := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pid)}
	// The link of an earlier life may linger for a moment while its network
	// namespace is taken apart.
	if old, err := netlink.LinkByName(name); err == nil {
		if err := netlink.LinkDel(old); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove old link %s: %w", name, err)
		}
	}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("make link %s: %w", name, err)
	}
	end, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(end); err != nil {
		return fmt.Errorf("bring up link %s: %w", name, err)
	}
	return nil
}

// setUpLink gives an interface its addresses and brings it up.
func setUpLink(name string, addresses []string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	for _, a := range addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return fmt.Errorf("address %q of %s: %w", a, name, err)
		}
		if err := netlink.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("give address %s to %s: %w", a, name, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up interface %s: %w", name, err)
	}
	return nil
}

// setUpRouting brings the loopback interface up, adds the routes and lets this
// network namespace pass packets on.
func setUpRouting(routes []Route) error {
	if err := setUpLink("lo", nil); err != nil {
		return err
	}
	for _, r := range routes {
		_, to, err := net.ParseCIDR(r.To)
		if err != nil {
			return fmt.Errorf("route to %q: %w", r.To, err)
		}
		via := net.ParseIP(r.Via)
		if via == nil {
			return fmt.Errorf("route to %s via %q: no address", r.To, r.Via)
		}
		if err := netlink.RouteReplace(&netlink.Route{Dst: to, Gw: via}); err != nil {
			return fmt.Errorf("route to %s via %s: %w", r.To, r.Via, err)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("let packets pass: %w", err)
	}
	return nil
}

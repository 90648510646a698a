package ec2sim

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Headers and bounds of instance metadata service version 2.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-v2-how-it-works.html
const (
	imdsTTLHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	imdsTokenHeader = "X-Aws-Ec2-Metadata-Token"
	imdsMaxTTL      = 21600 // seconds
)

// imdsToken is good for one instance, until a time.
type imdsToken struct {
	instance string
	until    time.Time
}

// imdsTokens live as long as the process: a client whose token is gone gets
// 401 and asks for another.
type imdsTokens struct{ byValue map[string]imdsToken }

// IMDS serves the instance metadata service to all instances, which it tells
// apart by the address they call from. Only version 2 is served: a request
// without token gets 401, as on instances that require tokens.
func (s *Sim) IMDS() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", s.imdsPutToken)
	mux.HandleFunc("GET /latest/", s.imdsGet)
	return mux
}

// caller is the instance that an address belongs to, the most exact source
// winning. It is a copy, empty if there is none.
func (s *Sim) caller(remote string) Instance {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return Instance{}
	}
	addr = addr.Unmap()
	s.mu.Lock()
	defer s.mu.Unlock()
	best, bits := Instance{}, -1
	for _, i := range s.store.instances {
		for _, src := range i.Sources {
			p, err := parseSource(src)
			if err == nil && i.State == instanceRunning && p.Contains(addr) && p.Bits() > bits {
				best, bits = i.clone(), p.Bits()
			}
		}
	}
	return best
}

func (s *Sim) imdsPutToken(w http.ResponseWriter, r *http.Request) {
	i := s.caller(r.RemoteAddr)
	ttl, err := strconv.Atoi(r.Header.Get(imdsTTLHeader))
	switch {
	case i.ID == "":
		s.imdsStranger(w, r)
		return
	case err != nil || ttl < 1 || ttl > imdsMaxTTL:
		http.Error(w, "400 - Bad Request", http.StatusBadRequest)
		return
	case r.Header.Get("X-Forwarded-For") != "": // refused against open proxies
		http.Error(w, "403 - Forbidden", http.StatusForbidden)
		return
	}
	var raw [42]byte
	_, _ = rand.Read(raw[:]) // documented never to fail
	token := base64.URLEncoding.EncodeToString(raw[:])
	s.mu.Lock()
	now := s.clock.Now()
	for v, t := range s.imds.byValue {
		if !t.until.After(now) {
			delete(s.imds.byValue, v)
		}
	}
	s.imds.byValue[token] = imdsToken{i.ID, now.Add(time.Duration(ttl) * time.Second)}
	s.mu.Unlock()
	w.Header().Set(imdsTTLHeader, strconv.Itoa(ttl))
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, token)
}

func (s *Sim) imdsStranger(w http.ResponseWriter, r *http.Request) {
	s.cfg.Log.Info("metadata asked by an address of no instance", "address", r.RemoteAddr, "path", r.URL.Path)
	http.Error(w, "ec2sim: no running instance has the address "+r.RemoteAddr, http.StatusNotFound)
}

func (s *Sim) imdsGet(w http.ResponseWriter, r *http.Request) {
	i := s.caller(r.RemoteAddr)
	if i.ID == "" {
		s.imdsStranger(w, r)
		return
	}
	s.mu.Lock()
	t, ok := s.imds.byValue[r.Header.Get(imdsTokenHeader)]
	fresh := ok && t.instance == i.ID && t.until.After(s.clock.Now())
	s.mu.Unlock()
	if !fresh {
		http.Error(w, "401 - Unauthorized", http.StatusUnauthorized)
		return
	}
	text, found := s.metadata(i, strings.TrimPrefix(r.URL.Path, "/latest/"))
	if !found {
		http.Error(w, "404 - Not Found", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, text)
}

// metadata is the text at a path below /latest/.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-metadata.html
func (s *Sim) metadata(i Instance, path string) (string, bool) {
	if path == "dynamic/instance-identity/document" {
		return s.identityDocument(i), true
	}
	key, ok := strings.CutPrefix(path, "meta-data")
	if !ok {
		return "", false
	}
	values := s.metadataValues(i)
	key = strings.Trim(key, "/")
	if v, ok := values[key]; ok {
		return v, true
	}
	return listing(values, key)
}

func (s *Sim) metadataValues(i Instance) map[string]string {
	values := map[string]string{
		"ami-id":                         "ami-00000000000000000",
		"instance-id":                    i.ID,
		"instance-type":                  i.Type,
		"local-ipv4":                     i.address(),
		"placement/availability-zone":    i.Zone,
		"placement/availability-zone-id": s.zoneID(i.Zone),
		"placement/region":               s.cfg.Region,
		// what was mapped at launch; volumes attached later do not show
		"block-device-mapping/ami":  "xvda",
		"block-device-mapping/root": rootDevice,
	}
	for n := range i.enis() {
		values[fmt.Sprintf("network/interfaces/macs/%s/device-number", i.mac(n))] = strconv.Itoa(n)
		values[fmt.Sprintf("network/interfaces/macs/%s/interface-id", i.mac(n))] = i.interfaceID(n)
	}
	return values
}

// listing names what is below a path, one a line, folders with a slash.
func listing(values map[string]string, folder string) (string, bool) {
	if folder != "" {
		folder += "/"
	}
	var names []string
	for key := range values {
		rest, ok := strings.CutPrefix(key, folder)
		if !ok {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		if deeper {
			name += "/"
		}
		names = append(names, name)
	}
	names = sortedUnique(names)
	return strings.Join(names, "\n"), len(names) > 0
}

// mac makes a stable address for each network interface.
func (i *Instance) mac(n int) string {
	d := strings.TrimPrefix(i.ID, "i-")
	d = d[len(d)-6:]
	return fmt.Sprintf("02:%02x:00:%s:%s:%s", n, d[0:2], d[2:4], d[4:6])
}

func (s *Sim) identityDocument(i Instance) string {
	doc, _ := json.MarshalIndent(map[string]any{ // strings always marshal
		"accountId": s.cfg.Account, "architecture": "x86_64", "availabilityZone": i.Zone, "billingProducts": nil,
		"imageId": "ami-00000000000000000", "instanceId": i.ID, "instanceType": i.Type, "kernelId": nil,
		"pendingTime": i.Launched.UTC().Format(time.RFC3339), "privateIp": i.address(), "ramdiskId": nil,
		"region": s.cfg.Region, "version": "2017-09-30",
	}, "", "  ")
	return string(doc)
}

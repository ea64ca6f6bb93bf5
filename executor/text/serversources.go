package text

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/engine/llm"
)

// watchedNamePrefix is the beginning of a URL whose host is a name with an address for each server. Thanos 0.39 has
// the same prefix for lists of addresses.
const watchedNamePrefix = "dns+"

// lookupTimeout bounds the wait for a name server, which other sources wait for, too.
const lookupTimeout = 5 * time.Second

// maxServerFile bounds a file of servers, in bytes.
const maxServerFile = 1 << 20

// ParseServerOffer reads URL, N=URL, N-M=URL, N/MODEL=URL and N-M/MODEL=URL. N and M are numbers of instances of the
// plan, from 0, of which the server may take one: without them any. MODEL is the model that the server runs alone.
// isName says that URL begins with dns+, and that each address of its host is a server (see NewServerName). The URL
// of the offer then lacks that.
func ParseServerOffer(text string) (o ServerOffer, isName bool, err error) {
	o = ServerOffer{LastInstance: anyInstance, Server: InstanceServer{URL: text}}
	if place, address, isNumbered := strings.Cut(text, "="); isNumbered && !strings.Contains(place, "://") {
		numbers, model, _ := strings.Cut(place, "/")
		first, last, isRange := strings.Cut(numbers, "-")
		if !isRange {
			last = first
		}
		n, errFirst := strconv.ParseUint(first, 10, 20)
		m, errLast := strconv.ParseUint(last, 10, 20)
		if errFirst != nil || errLast != nil || m < n {
			return o, false, fmt.Errorf("%s: expected URL, N=URL or N/MODEL=URL, with the number N of an instance from 0, or N-M for one of several", text)
		}
		o.FirstInstance, o.LastInstance, o.Server.Model, o.Server.URL = int(n), int(m), model, address
	}
	o.Server.URL, isName = strings.CutPrefix(o.Server.URL, watchedNamePrefix)
	if _, err := llm.New(o.Server.URL); err != nil {
		return o, false, fmt.Errorf("%s: %w", text, err)
	}
	if isName && strings.HasPrefix(o.Server.URL, "https:") {
		return o, false, fmt.Errorf("%s: found https, expected dns+http://NAME:PORT: certificates are for names, and each address of the name is a server", text)
	}
	return o, isName, nil
}

// ServerFile is a file with a server a line, in the form that ParseServerOffer reads, without dns+. Empty lines, and
// those that begin with #, count for nothing. A change counts once two questions in a row have seen it, so that a file
// that is half written does not.
type ServerFile struct {
	path, key string
	pending   []byte // content that was seen last
	offers    []ServerOffer
}

// NewServerFile reads a file of servers. key is the bearer token for all.
func NewServerFile(path, key string) (*ServerFile, error) {
	f := &ServerFile{path: path, key: key}
	data, err := f.read()
	if err != nil {
		return nil, err
	}
	f.pending = data
	f.offers, err = f.parse(data)
	return f, err
}

// String implements ServerSource.
func (f *ServerFile) String() string { return f.path }

// Offers implements ServerSource.
func (f *ServerFile) Offers(context.Context) ([]ServerOffer, error) {
	data, err := f.read()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(data, f.pending) {
		f.pending = data
		return f.offers, nil
	}
	offers, err := f.parse(data)
	if err == nil {
		f.offers = offers
	}
	return f.offers, err
}

// read returns the content of the file.
func (f *ServerFile) read() ([]byte, error) {
	info, err := os.Stat(f.path)
	if err == nil && info.Size() > maxServerFile {
		return nil, fmt.Errorf("%s: found %d bytes, expected a server a line, at most %d bytes", f.path, info.Size(), maxServerFile)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(f.path)
}

// parse returns the servers of the file's lines.
func (f *ServerFile) parse(data []byte) ([]ServerOffer, error) {
	out := []ServerOffer{}
	lines := map[serverIdentity]int{}
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		o, isName, err := ParseServerOffer(line)
		if isName {
			err = fmt.Errorf("found %s, expected http:// or https://: a name whose addresses are watched is given by --server", line)
		}
		id := o.Server.identity()
		if err == nil && lines[id] > 0 {
			err = fmt.Errorf("found %s, which line %d has, too: expected each server once", o.Server.URL, lines[id])
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", f.path, i+1, err)
		}
		lines[id], o.Server.Key = i+1, f.key
		out = append(out, o)
	}
	return out, nil
}

// ServerName is a host name, each of whose addresses is a server, such as a headless Service of Kubernetes.
type ServerName struct {
	offer  ServerOffer
	url    *url.URL
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// nameResolver answers with an error if one of the questions for IPv4 and IPv6 addresses fails. Others answer with the
// addresses of one kind then.
var nameResolver = &net.Resolver{PreferGo: true, StrictErrors: true}

// NewServerName returns the source of a server that ParseServerOffer calls a name. key is the bearer token for all.
func NewServerName(o ServerOffer, key string) (*ServerName, error) {
	u, err := url.Parse(o.Server.URL)
	if err != nil {
		return nil, err
	}
	o.Server.Key = key
	return &ServerName{offer: o, url: u, lookup: nameResolver.LookupNetIP}, nil
}

// String implements ServerSource.
func (n *ServerName) String() string { return watchedNamePrefix + n.url.String() }

// Offers implements ServerSource: it returns a server for each IPv4 address of the name, ascending. If there is none,
// it returns one for each IPv6 address, because a server with both would count twice. An answer without addresses is an
// error, so that a name server that fails takes no server away.
func (n *ServerName) Offers(ctx context.Context) ([]ServerOffer, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addresses, err := n.lookup(ctx, "ip", n.url.Hostname())
	if err == nil && len(addresses) == 0 {
		err = errors.New("the name has no addresses")
	}
	if err != nil {
		return nil, err
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	if v4 := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !a.Is4() }); len(v4) > 0 {
		addresses = v4
	}
	slices.SortFunc(addresses, netip.Addr.Compare)

	// Each address takes the place of the name in the URL.
	var out []ServerOffer
	for _, address := range slices.Compact(addresses) {
		o, u := n.offer, *n.url
		switch port := u.Port(); {
		case port != "":
			u.Host = net.JoinHostPort(address.String(), port)
		case address.Is6():
			u.Host = "[" + address.String() + "]"
		default:
			u.Host = address.String()
		}
		o.Server.URL = u.String()
		out = append(out, o)
	}
	return out, nil
}

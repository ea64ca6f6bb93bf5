package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// A browser runs code of strangers, and reaches servers that strangers do not, such as those on loopback. A request
// that it sends for a page of another site has an Origin. If a site points its own name at this server to pass for
// the same site, the request has that name as its Host.

// CheckCaller returns an error for requests that a page of another site has sent. hosts are the names under which
// clients reach the server, in addition to localhost and addresses; "*" allows any name. If a token is required, the
// name does not matter, because a page does not know the token.
func CheckCaller(r *http.Request, hosts []string, token bool) *Error {
	if !token && !knownHost(r.Host, hosts) {
		return &Error{Code: CodeForbidden, Reason: "host", Field: "Host",
			Msg: fmt.Sprintf("found %q, expected an address, localhost or a name given with --host: without a token other names are refused", Clip(r.Host))}
	}
	origin := r.Header["Origin"]
	if len(origin) == 0 {
		return nil
	}
	u, err := url.Parse(origin[0])
	if len(origin) == 1 && err == nil && u.Host != "" && (strings.EqualFold(u.Host, r.Host) || namedHost(hostname(u.Host), hosts)) {
		return nil
	}
	return &Error{Code: CodeForbidden, Reason: "origin", Field: "Origin", Msg: fmt.Sprintf("pages of %q may not use this server; --host NAME lets those of NAME", Clip(origin[0]))}
}

// knownHost returns true if a request with this Host header may be meant for this server: an address, localhost, or one
// of the names in hosts. Web pages of others that let their name resolve to this server (DNS rebinding) are refused by
// it.
func knownHost(host string, hosts []string) bool {
	name := hostname(host)
	if name == "" || strings.EqualFold(name, "localhost") {
		return true
	}
	if c := name[len(name)-1]; c >= '0' && c <= '9' || strings.IndexByte(name, ':') >= 0 {
		if _, err := netip.ParseAddr(name); err == nil {
			return true
		}
	}
	return namedHost(name, hosts)
}

// namedHost reports whether a name is one of hosts.
func namedHost(name string, hosts []string) bool {
	return slices.ContainsFunc(hosts, func(h string) bool { return h == "*" || strings.EqualFold(h, name) })
}

// hostname returns a Host without its port and brackets.
func hostname(host string) string {
	if bracketed, ok := strings.CutPrefix(host, "["); ok {
		name, _, _ := strings.Cut(bracketed, "]")
		return name
	}
	name, _, _ := strings.Cut(host, ":")
	return name
}

// CheckContentType returns an error unless the request has one of the content types, or names none. The types must
// not include those that a page may send without asking (CORS).
func CheckContentType(r *http.Request, kinds ...string) *Error {
	v := r.Header["Content-Type"]
	if len(v) == 0 {
		return nil
	}
	kind, _, _ := strings.Cut(v[0], ";")
	kind = strings.TrimSpace(kind)
	if len(v) == 1 && slices.ContainsFunc(kinds, func(k string) bool { return strings.EqualFold(k, kind) }) {
		return nil
	}
	return &Error{Code: CodeUnsupportedMedia, Reason: "content_type", Field: "Content-Type",
		Msg: fmt.Sprintf("found %q, expected %s (with curl: --json)", Clip(strings.Join(v, ", ")), strings.Join(kinds, " or "))}
}

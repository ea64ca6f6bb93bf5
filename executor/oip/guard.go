package oip

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// A browser runs code of strangers and reaches servers that strangers do not,
// such as those on loopback. What it sends for a page of another site carries
// an Origin; and where a site points its own name at this server, to pass for
// the same site, the request carries that name as its Host.

// checkCaller refuses requests that a page of another site has sent.
func (o *Options) checkCaller(r *http.Request) *Error {
	// A token is proof enough against other names: a page does not know it.
	if o.BearerToken == "" && !o.knownHost(r.Host) {
		return &Error{Code: CodeForbidden, Reason: "host", Field: "Host",
			Msg: fmt.Sprintf("found %q, expected an address, localhost or a name given with --host: without a token other names are refused", clip(r.Host))}
	}
	origin := r.Header["Origin"]
	if len(origin) == 0 {
		return nil
	}
	u, err := url.Parse(origin[0])
	if len(origin) == 1 && err == nil && u.Host != "" && (strings.EqualFold(u.Host, r.Host) || o.namedHost(hostname(u.Host))) {
		return nil
	}
	return &Error{Code: CodeForbidden, Reason: "origin", Field: "Origin", Msg: fmt.Sprintf("pages of %q may not use this server; --host NAME lets those of NAME", clip(origin[0]))}
}

// knownHost says whether a request may be meant for this server.
func (o *Options) knownHost(host string) bool {
	name := hostname(host)
	if name == "" || strings.EqualFold(name, "localhost") {
		return true
	}
	if c := name[len(name)-1]; c >= '0' && c <= '9' || strings.IndexByte(name, ':') >= 0 {
		if _, err := netip.ParseAddr(name); err == nil {
			return true
		}
	}
	return o.namedHost(name)
}

func (o *Options) namedHost(name string) bool {
	return slices.ContainsFunc(o.Hosts, func(h string) bool { return h == "*" || strings.EqualFold(h, name) })
}

// hostname is a Host without its port and brackets.
func hostname(host string) string {
	if rest, ok := strings.CutPrefix(host, "["); ok {
		name, _, _ := strings.Cut(rest, "]")
		return name
	}
	name, _, _ := strings.Cut(host, ":")
	return name
}

// checkContentType takes the protocol's types, and a request that names none.
// Those that a page may send without asking are not among them.
func checkContentType(r *http.Request) *Error {
	v := r.Header["Content-Type"]
	if len(v) == 0 {
		return nil
	}
	kind, _, _ := strings.Cut(v[0], ";")
	if kind = strings.TrimSpace(kind); len(v) == 1 && (strings.EqualFold(kind, "application/json") || strings.EqualFold(kind, "application/octet-stream")) {
		return nil
	}
	return &Error{Code: CodeUnsupportedMedia, Reason: "content_type", Field: "Content-Type",
		Msg: fmt.Sprintf("found %q, expected application/json or application/octet-stream (with curl: --json)", clip(strings.Join(v, ", ")))}
}

// Guard puts the rules of the protocol's own paths in front of another handler:
// its token, and nothing for pages of other sites.
func Guard(opt Options, next http.Handler) http.Handler {
	opt = opt.withDefaults()
	s := &HTTPServer{core: core{opt: opt}, token: newTokenCheck(opt.BearerToken)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.admit(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// admit answers a request that may not pass.
func (s *HTTPServer) admit(w http.ResponseWriter, r *http.Request) bool {
	err := s.core.opt.checkCaller(r)
	if err == nil {
		if err = s.token.check(r.Header.Get("Authorization")); err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
	}
	if err != nil {
		s.fail(w, s.refuse(w, r, err))
	}
	return err == nil
}

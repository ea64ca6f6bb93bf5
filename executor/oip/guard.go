package oip

import (
	"net/http"

	"inferplan/executor/httplimit"
)

// contentTypes are the protocol's.
var contentTypes = []string{"application/json", "application/octet-stream"}

func (o *Options) tokens() httplimit.Tokens {
	if o.BearerToken == "" {
		return nil
	}
	return httplimit.NewTokens(o.BearerToken)
}

// Guard puts the rules of the protocol's own paths in front of another handler:
// its token, and nothing for pages of other sites.
func Guard(opt Options, next http.Handler) http.Handler {
	opt = opt.withDefaults()
	s := &HTTPServer{core: core{opt: opt}, tokens: opt.tokens()}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.admit(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// admit answers a request that may not pass.
func (s *HTTPServer) admit(w http.ResponseWriter, r *http.Request) bool {
	err := httplimit.CheckCaller(r, s.core.opt.Hosts, len(s.tokens) > 0)
	if err == nil {
		if _, err = s.tokens.Check(r.Header.Get("Authorization")); err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
	}
	if err != nil {
		s.fail(w, s.refuse(w, r, err))
	}
	return err == nil
}

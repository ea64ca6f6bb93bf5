package oip

import (
	"net/http"

	"inferplan/executor/httplimit"
)

// Guard puts a door, which limits and checks requests, in front of a handler. Refusals have the form of this
// protocol.
func Guard(door *httplimit.Door, next http.Handler) http.Handler {
	return door.Handler(writeError, holderHandler(next))
}

// GuardPage is like Guard for pages that people read in browsers.
func GuardPage(door *httplimit.Door, next http.Handler) http.Handler {
	return door.PageHandler(writeError, holderHandler(next))
}

// holderHandler returns a handler that serves all holders alike.
func holderHandler(next http.Handler) httplimit.HolderHandler {
	return func(w http.ResponseWriter, r *http.Request, _ *httplimit.Holder) error {
		next.ServeHTTP(w, r)
		return nil
	}
}

package oip

import (
	"net/http"

	"inferplan/executor/httplimit"
)

// Guard puts a door, which limits and checks requests, in front of a handler. Refusals have the form of this
// protocol.
func Guard(door *httplimit.Door, next http.Handler) http.Handler {
	return door.Handler(writeError, func(w http.ResponseWriter, r *http.Request, _ *httplimit.Holder) error {
		next.ServeHTTP(w, r)
		return nil
	})
}

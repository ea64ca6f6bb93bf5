package httplimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"
)

// Code says why a request was not answered with outputs.
type Code uint8

// The codes, with the HTTP status that each becomes.
const (
	CodeInternal         Code = iota // 500
	CodeInvalid                      // 400
	CodeNotFound                     // 404
	CodeDropped                      // 429
	CodeTooLarge                     // 413
	CodeUnavailable                  // 503
	CodeDeadline                     // 504
	CodeCancelled                    // 499: the client went away
	CodeUnauthenticated              // 401
	CodeMethod                       // 405
	CodeUnsupportedMedia             // 415
	CodeForbidden                    // 403: a page of another site asks
)

var statuses = [...]int{
	CodeInternal:         http.StatusInternalServerError,
	CodeInvalid:          http.StatusBadRequest,
	CodeNotFound:         http.StatusNotFound,
	CodeDropped:          http.StatusTooManyRequests,
	CodeTooLarge:         http.StatusRequestEntityTooLarge,
	CodeUnavailable:      http.StatusServiceUnavailable,
	CodeDeadline:         http.StatusGatewayTimeout,
	CodeCancelled:        499,
	CodeUnauthenticated:  http.StatusUnauthorized,
	CodeMethod:           http.StatusMethodNotAllowed,
	CodeUnsupportedMedia: http.StatusUnsupportedMediaType,
	CodeForbidden:        http.StatusForbidden,
}

// HTTPStatus is the status that the code becomes.
func (c Code) HTTPStatus() int { return statuses[c] }

// Error is a refusal or a failure as clients see it.
type Error struct {
	Code Code
	// Reason is a short word for machines, such as a policy's reason for a drop.
	Reason string
	// Field is where in the request the fault is, such as `inputs[0].shape`.
	Field string
	Msg   string
	// RetryAfter is when asking again is worth it, from now on. 0: not known.
	RetryAfter time.Duration
	// Estimate is how long the request would take, or would have taken. 0: not known.
	Estimate time.Duration
	Err      error
}

func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Msg
	}
	return e.Msg
}

func (e *Error) Unwrap() error { return e.Err }

// Dropped refuses a request that the policy will not run; reason is the
// policy's word for it.
func Dropped(reason, format string, args ...any) *Error {
	return &Error{Code: CodeDropped, Reason: reason, Msg: fmt.Sprintf(format, args...)}
}

// Invalid refuses a faulty request; field says where the fault is.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Reason: "invalid_argument", Field: field, Msg: fmt.Sprintf(format, args...)}
}

// NotFound refuses an unknown model, version or path.
func NotFound(format string, args ...any) *Error {
	return &Error{Code: CodeNotFound, Reason: "not_found", Msg: fmt.Sprintf(format, args...)}
}

// Unavailable refuses because the server starts, drains or has lost a part;
// the same request may succeed later or elsewhere.
func Unavailable(reason, format string, args ...any) *Error {
	return &Error{Code: CodeUnavailable, Reason: reason, Msg: fmt.Sprintf(format, args...)}
}

// Internal reports a failure that is not the client's.
func Internal(err error, format string, args ...any) *Error {
	return &Error{Code: CodeInternal, Reason: "internal", Msg: fmt.Sprintf(format, args...), Err: err}
}

// TooLarge refuses what is beyond a limit.
func TooLarge(field, format string, args ...any) *Error {
	return &Error{Code: CodeTooLarge, Reason: "too_large", Field: field, Msg: fmt.Sprintf(format, args...)}
}

// AsError gives every error a code.
func AsError(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: CodeDeadline, Reason: "deadline_exceeded", Msg: "the request's deadline passed", Err: err}
	case errors.Is(err, context.Canceled):
		return &Error{Code: CodeCancelled, Reason: "cancelled", Msg: "the client cancelled the request", Err: err}
	default:
		return &Error{Code: CodeInternal, Reason: "internal", Msg: err.Error(), Err: err}
	}
}

// Panicked notes a panic of a handler, so that it stays with its own request. The panic
// by which a handler cuts a connection goes on.
func Panicked(p any, r *http.Request, log *slog.Logger) {
	if p == http.ErrAbortHandler {
		panic(p) // net/http's own way
	}
	log.Error("panic in an HTTP handler", "path", Clip(r.URL.Path), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// Clip shortens what a client sent, for messages.
func Clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

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

// Code is the kind of an error.
type Code uint8

// The codes, with the HTTP status of each.
const (
	CodeInternal         Code = iota // 500
	CodeInvalid                      // 400
	CodeNotFound                     // 404
	CodeDropped                      // 429
	CodeTooLarge                     // 413
	CodeUnavailable                  // 503
	CodeDeadline                     // 504
	CodeCancelled                    // 499: the client disconnected
	CodeUnauthenticated              // 401
	CodeMethod                       // 405
	CodeUnsupportedMedia             // 415
	CodeForbidden                    // 403: a page of another site sent the request
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

// HTTPStatus returns the HTTP status of the code.
func (c Code) HTTPStatus() int { return statuses[c] }

// Error is a refusal or a failure as clients see it.
type Error struct {
	Code Code
	// Reason is a short word for programs, such as a policy's reason for a drop.
	Reason string
	// Field is the place of the fault in the request, such as `inputs[0].shape`.
	Field string
	Msg   string
	// RetryAfter is the time from now on after which to try again, or 0 if it is unknown.
	RetryAfter time.Duration
	// Estimate is the time that the request would take, or would have taken, or 0 if it is unknown.
	Estimate time.Duration
	Err      error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Msg
	}
	return e.Msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Dropped returns the error for a request that the policy will not run. reason is the policy's word for it.
func Dropped(reason, format string, args ...any) *Error {
	return &Error{Code: CodeDropped, Reason: reason, Msg: fmt.Sprintf(format, args...)}
}

// Invalid returns the error for a faulty request. field is the place of the fault.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Reason: "invalid_argument", Field: field, Msg: fmt.Sprintf(format, args...)}
}

// NotFound returns the error for an unknown model, version or path.
func NotFound(format string, args ...any) *Error {
	return &Error{Code: CodeNotFound, Reason: "not_found", Msg: fmt.Sprintf(format, args...)}
}

// Unavailable returns the error for a server that starts, drains or has lost a part. The same request may succeed
// later or elsewhere.
func Unavailable(reason, format string, args ...any) *Error {
	return &Error{Code: CodeUnavailable, Reason: reason, Msg: fmt.Sprintf(format, args...)}
}

// Internal returns the error for a failure that is not the client's.
func Internal(err error, format string, args ...any) *Error {
	return &Error{Code: CodeInternal, Reason: "internal", Msg: fmt.Sprintf(format, args...), Err: err}
}

// TooLarge returns the error for a request that exceeds a limit.
func TooLarge(field, format string, args ...any) *Error {
	return &Error{Code: CodeTooLarge, Reason: "too_large", Field: field, Msg: fmt.Sprintf(format, args...)}
}

// AsError returns err as an *Error, which has a code: err itself or one that it wraps; otherwise one for a passed
// deadline or a cancelled context; otherwise an internal error.
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

// LogPanic logs a panic of a handler. The panic with which a handler closes its connection is passed on.
func LogPanic(p any, r *http.Request, log *slog.Logger) {
	if p == http.ErrAbortHandler {
		panic(p) // net/http's own way to close a connection
	}
	log.Error("panic in an HTTP handler", "path", Clip(r.URL.Path), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// Clip shortens a text that a client has sent, for messages.
func Clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

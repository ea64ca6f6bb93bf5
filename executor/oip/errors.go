package oip

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
)

// Code says why a request was not answered with outputs.
type Code uint8

// The codes, with the HTTP status and gRPC code that each becomes.
const (
	CodeInternal         Code = iota // 500, INTERNAL
	CodeInvalid                      // 400, INVALID_ARGUMENT
	CodeNotFound                     // 404, NOT_FOUND
	CodeDropped                      // 429, RESOURCE_EXHAUSTED
	CodeTooLarge                     // 413, RESOURCE_EXHAUSTED
	CodeUnavailable                  // 503, UNAVAILABLE
	CodeDeadline                     // 504, DEADLINE_EXCEEDED
	CodeCancelled                    // 499, CANCELLED: the client went away
	CodeUnauthenticated              // 401, UNAUTHENTICATED
	CodeMethod                       // 405, UNIMPLEMENTED code of gRPC
	CodeUnsupportedMedia             // 415, INVALID_ARGUMENT
	CodeForbidden                    // 403, PERMISSION_DENIED: a page of another site asks
)

var codeTable = [...]struct {
	http int
	grpc codes.Code
}{
	CodeInternal:         {http.StatusInternalServerError, codes.Internal},
	CodeInvalid:          {http.StatusBadRequest, codes.InvalidArgument},
	CodeNotFound:         {http.StatusNotFound, codes.NotFound},
	CodeDropped:          {http.StatusTooManyRequests, codes.ResourceExhausted},
	CodeTooLarge:         {http.StatusRequestEntityTooLarge, codes.ResourceExhausted},
	CodeUnavailable:      {http.StatusServiceUnavailable, codes.Unavailable},
	CodeDeadline:         {http.StatusGatewayTimeout, codes.DeadlineExceeded},
	CodeCancelled:        {499, codes.Canceled},
	CodeUnauthenticated:  {http.StatusUnauthorized, codes.Unauthenticated},
	CodeMethod:           {http.StatusMethodNotAllowed, codes.Unimplemented},
	CodeUnsupportedMedia: {http.StatusUnsupportedMediaType, codes.InvalidArgument},
	CodeForbidden:        {http.StatusForbidden, codes.PermissionDenied},
}

// HTTPStatus is the status that the code becomes over HTTP.
func (c Code) HTTPStatus() int { return codeTable[c].http }

// GRPC is the code over gRPC.
func (c Code) GRPC() codes.Code { return codeTable[c].grpc }

// Error is a refusal or a failure as clients see it.
type Error struct {
	Code Code
	// Reason is a short word for machines, such as a policy's reason for a
	// drop: header Inferplan-Reason over HTTP, ErrorInfo.reason over gRPC.
	Reason string
	// Field is where in the request the fault is, such as `inputs[0].shape`.
	Field string
	Msg   string
	// RetryAfter is when asking again is worth it, from now on: header Retry-After
	// over HTTP in whole seconds, RetryInfo over gRPC. 0: not known.
	RetryAfter time.Duration
	// Estimate is how long the request would take, or would have taken: header
	// Inferplan-Estimate-Ms over HTTP, estimate_ms of ErrorInfo over gRPC. 0: not
	// known.
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

// DeadlineExceeded gives up on a request whose budget is spent.
func DeadlineExceeded(format string, args ...any) *Error {
	return &Error{Code: CodeDeadline, Reason: "deadline_exceeded", Msg: fmt.Sprintf(format, args...)}
}

// Internal reports a failure that is not the client's.
func Internal(err error, format string, args ...any) *Error {
	return &Error{Code: CodeInternal, Reason: "internal", Msg: fmt.Sprintf(format, args...), Err: err}
}

func tooLarge(field, format string, args ...any) *Error {
	return &Error{Code: CodeTooLarge, Reason: "too_large", Field: field, Msg: fmt.Sprintf(format, args...)}
}

// asError gives every error a code.
func asError(err error) *Error {
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

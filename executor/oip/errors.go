package oip

import (
	"google.golang.org/grpc/codes"

	"inferplan/executor/httplimit"
)

// What is refused, and how, is the same for all protocols (package httplimit).
// Header Inferplan-Reason carries Error.Reason over HTTP, ErrorInfo.reason over gRPC.
// Error.RetryAfter is header Retry-After in whole seconds and RetryInfo, Error.Estimate
// is header Inferplan-Estimate-Ms and estimate_ms of ErrorInfo.
type (
	Code  = httplimit.Code
	Error = httplimit.Error
)

// The codes of refusals.
const (
	CodeInternal         = httplimit.CodeInternal
	CodeInvalid          = httplimit.CodeInvalid
	CodeNotFound         = httplimit.CodeNotFound
	CodeDropped          = httplimit.CodeDropped
	CodeTooLarge         = httplimit.CodeTooLarge
	CodeUnavailable      = httplimit.CodeUnavailable
	CodeDeadline         = httplimit.CodeDeadline
	CodeCancelled        = httplimit.CodeCancelled
	CodeUnauthenticated  = httplimit.CodeUnauthenticated
	CodeMethod           = httplimit.CodeMethod
	CodeUnsupportedMedia = httplimit.CodeUnsupportedMedia
	CodeForbidden        = httplimit.CodeForbidden
)

// Constructors of errors, and that of budgets.
var (
	Dropped     = httplimit.Dropped
	Invalid     = httplimit.Invalid
	NotFound    = httplimit.NotFound
	Unavailable = httplimit.Unavailable
	Internal    = httplimit.Internal
)

var grpcCodes = [...]codes.Code{
	CodeInternal:         codes.Internal,
	CodeInvalid:          codes.InvalidArgument,
	CodeNotFound:         codes.NotFound,
	CodeDropped:          codes.ResourceExhausted,
	CodeTooLarge:         codes.ResourceExhausted,
	CodeUnavailable:      codes.Unavailable,
	CodeDeadline:         codes.DeadlineExceeded,
	CodeCancelled:        codes.Canceled,
	CodeUnauthenticated:  codes.Unauthenticated,
	CodeMethod:           codes.Unimplemented,
	CodeUnsupportedMedia: codes.InvalidArgument,
	CodeForbidden:        codes.PermissionDenied,
}

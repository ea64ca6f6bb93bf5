package oip

import (
	"google.golang.org/grpc/codes"

	"inferplan/executor/httplimit"
)

// Errors are the same for all protocols (package httplimit). The header Inferplan-Reason carries Error.Reason over
// HTTP, ErrorInfo.reason over gRPC. Error.RetryAfter is sent as the header Retry-After in whole seconds, and as
// RetryInfo. Error.Estimate is sent as the header Inferplan-Estimate-Ms, and as estimate_ms of ErrorInfo.
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

// Constructors of errors.
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

package oip

import (
	"google.golang.org/grpc/codes"

	"inferplan/executor/httplimit"
)

// Errors are the same for all protocols (package httplimit). The header Inferplan-Reason carries Error.Reason over
// HTTP, ErrorInfo.reason over gRPC. Error.RetryAfter is sent as the header Retry-After in whole seconds, and as
// RetryInfo. Error.Estimate is sent as the header Inferplan-Estimate-Ms, and as estimate_ms of ErrorInfo.
type Error = httplimit.Error

// grpcCodes are the codes of gRPC for those of refusals.
var grpcCodes = [...]codes.Code{
	httplimit.CodeInternal:         codes.Internal,
	httplimit.CodeInvalid:          codes.InvalidArgument,
	httplimit.CodeNotFound:         codes.NotFound,
	httplimit.CodeDropped:          codes.ResourceExhausted,
	httplimit.CodeTooLarge:         codes.ResourceExhausted,
	httplimit.CodeUnavailable:      codes.Unavailable,
	httplimit.CodeDeadline:         codes.DeadlineExceeded,
	httplimit.CodeCancelled:        codes.Canceled,
	httplimit.CodeUnauthenticated:  codes.Unauthenticated,
	httplimit.CodeMethod:           codes.Unimplemented,
	httplimit.CodeUnsupportedMedia: codes.InvalidArgument,
	httplimit.CodeForbidden:        codes.PermissionDenied,
}

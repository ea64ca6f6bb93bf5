package oip

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/proto" // registered first, so that our codec replaces it
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"inferplan/executor/httplimit"
	"inferplan/executor/oip/oippb"
)

// health is the standard health service. It asks for the state at every probe.
type health GRPCServer

// status returns the health status of a service, and whether there is such a service. An empty name stands for the
// whole server.
func (h *health) status(service string) (healthpb.HealthCheckResponse_ServingStatus, bool) {
	if service != "" && service != oippb.GRPCInferenceService_ServiceDesc.ServiceName {
		return healthpb.HealthCheckResponse_SERVICE_UNKNOWN, false
	}
	if (*GRPCServer)(h).core.ready() {
		return healthpb.HealthCheckResponse_SERVING, true
	}
	return healthpb.HealthCheckResponse_NOT_SERVING, true
}

// Check answers one health probe of a service.
func (h *health) Check(_ context.Context, in *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	st, ok := h.status(in.GetService())
	if !ok {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", httplimit.Clip(in.GetService()))
	}
	return &healthpb.HealthCheckResponse{Status: st}, nil
}

// List answers a probe for the status of every service.
func (h *health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	out := &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{}}
	for _, name := range []string{"", oippb.GRPCInferenceService_ServiceDesc.ServiceName} {
		st, _ := h.status(name)
		out.Statuses[name] = &healthpb.HealthCheckResponse{Status: st}
	}
	return out, nil
}

// watchInterval is the time between two looks at a watched status.
const watchInterval = 200 * time.Millisecond

// Watch implements the streaming health check: it sends the status of a service now and whenever it has changed, looking
// every watchInterval, until the client leaves or the server stops.
func (h *health) Watch(in *healthpb.HealthCheckRequest, out healthpb.Health_WatchServer) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	lastStatus := healthpb.HealthCheckResponse_ServingStatus(-1)
	for {
		if st, _ := h.status(in.GetService()); st != lastStatus {
			if err := out.Send(&healthpb.HealthCheckResponse{Status: st}); err != nil {
				return err
			}
			lastStatus = st
		}
		select {
		case <-tick.C:
		case <-out.Context().Done():
			return status.FromContextError(out.Context().Err()).Err()
		case <-h.stop:
			return status.Error(codes.Unavailable, "the server is shutting down")
		}
	}
}

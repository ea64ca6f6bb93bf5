package executor

import (
	"testing"
	"time"

	"inferplan/formats/report"
	"inferplan/policy"
)

// A request under way is not answered in time: it counts as the simulator counts it.
func TestReportOfOpenRequests(t *testing.T) {
	c := requestCounts{requests: 10, completed: 6, late: 1, dropped: make([]int64, len(policy.DropReasons())+1)}
	c.dropped[policy.ReasonDeadline] = 2
	got := c.report(time.Second)
	if got.Dropped != 4 || got.DroppedByReason[report.Unfinished] != 2 || got.Requests != got.Completed+got.Dropped || got.Attainment != 0.5 || got.AttainmentCI == nil {
		t.Errorf("got %+v, want 2 of 4 dropped ones unfinished, and half of the requests in time", got)
	}
}

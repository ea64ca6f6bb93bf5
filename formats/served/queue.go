package served

import (
	"fmt"
	"math"
)

// Queue is the part of plans of queues.
type Queue struct {
	Replans   Replans         `json:"replans"`
	Instances []QueueInstance `json:"instances"`
}

// Replans counts the searches for an order of the queues, by how they ended.
type Replans struct {
	Adopted    int64 `json:"adopted"`
	Stayed     int64 `json:"stayed"`
	OutOfTime  int64 `json:"out_of_time"`
	Failed     int64 `json:"failed"`
	ByDeadline int64 `json:"by_deadline"`
}

// QueueInstance is an instance of language models with its queue.
type QueueInstance struct {
	Instance     string       `json:"instance"`
	Up           bool         `json:"up"`
	Model        string       `json:"model,omitempty"`
	LoadingModel string       `json:"loading_model,omitempty"`
	Running      int          `json:"running"`
	MaxRequests  int          `json:"max_requests"` // that it runs at once; -1 if there is no bound
	Groups       []QueueGroup `json:"groups,omitempty"`
}

// QueueGroup is a group of requests that wait and are served together, in the order of service. Times are in seconds from now.
type QueueGroup struct {
	Model    string  `json:"model"`
	Requests int     `json:"requests"`
	StartS   float64 `json:"start_s"`
	DueS     float64 `json:"due_s"`
}

// PlanKind implements Part.
func (*Queue) PlanKind() string { return "queue" }

// Gauge implements Part.
func (*Queue) Gauge() (string, float64) { return "", 0 }

// Waiting returns the number of requests in the queue of an instance.
func (i *QueueInstance) Waiting() int {
	n := 0
	for _, g := range i.Groups {
		n += g.Requests
	}
	return n
}

// Tables implements Part.
func (q *Queue) Tables() []Table {
	r := &q.Replans
	instances := Table{Title: "Instances", Align: "lllrrrr", Header: []string{"instance", "model", "loads", "running", "at most", "groups", "waiting"},
		Text: fmt.Sprintf("Searches for a better order of the queues: %d adopted, %d without a better order, %d out of time, %d failed, %d by deadline.", r.Adopted, r.Stayed, r.OutOfTime, r.Failed, r.ByDeadline)}
	groups := Table{Title: "Groups, in the order of service", Align: "llrrrl", Header: []string{"instance", "model", "requests", "expected start", "due", "expected"}}
	for k := range q.Instances {
		i := &q.Instances[k]
		model, most := i.Model, "no bound"
		switch {
		case !i.Up:
			model = "down"
		case model == "":
			model = "none"
		}
		if i.MaxRequests >= 0 {
			most = fmt.Sprint(i.MaxRequests)
		}
		instances.Rows = append(instances.Rows, []string{i.Instance, model, i.LoadingModel, fmt.Sprint(i.Running), most, fmt.Sprint(len(i.Groups)), fmt.Sprint(i.Waiting())})
		for _, g := range i.Groups {
			expected := "in time"
			if g.StartS > g.DueS {
				expected = "late"
			}
			groups.Rows = append(groups.Rows, []string{i.Instance, g.Model, fmt.Sprint(g.Requests), fromNow(g.StartS), fromNow(g.DueS), expected})
		}
	}
	return []Table{instances, groups}
}

// fromNow returns a time in seconds from now for people.
func fromNow(seconds float64) string {
	if seconds < 0 {
		return fmt.Sprintf("%.1f s ago", math.Abs(seconds))
	}
	return fmt.Sprintf("in %.1f s", seconds)
}

package served

import (
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Interval is the time between two samples, and between two updates of a page that shows them.
const Interval = 5 * time.Second

// State is the state of a server at one moment.
type State struct {
	At             time.Time        `json:"at"`
	Kind           string           `json:"kind"`
	Policy         string           `json:"policy"`
	PlanSHA256     string           `json:"plan_sha256"`
	PlanAgeS       float64          `json:"plan_age_s"` // since the plan came into force
	UptimeS        float64          `json:"uptime_s"`   // since the first plan came into force
	Ready          bool             `json:"ready"`
	OpenRequests   int              `json:"open_requests"`   // requests without an answer
	WindowS        float64          `json:"window_s"`        // the length of the windows of models
	DeviceWindowS  float64          `json:"device_window_s"` // the length of the window of devices, which begins with their plan at the earliest
	Models         []Model          `json:"models"`
	Total          Model            `json:"total"` // all models together, also those of earlier plans; the promise is the sum of the rates
	DropsByReason  map[string]int64 `json:"drops_by_reason"`
	DeviceKinds    []string         `json:"device_kinds"`
	Devices        []Device         `json:"devices"`
	SampleInterval float64          `json:"sample_interval_s"`
	Samples        []Sample         `json:"samples"` // the last minutes, the oldest first
	Events         []Event          `json:"events"`  // the newest first
	Part           Part             `json:"part"`    // of the plan's kind
}

// Model is a served model, or one class of it, with the plan's promise and the requests that were served. A sample of a request counts as a request.
type Model struct {
	Model              string          `json:"model"`
	Class              string          `json:"class,omitempty"`     // SLO class
	PromisedRPS        float64         `json:"promised_rps"`        // 0 if no rate was promised
	SLOUS              document.Micros `json:"slo_us"`              // 0 for several models together
	PromisedAttainment float64         `json:"promised_attainment"` // the share of the requests that has to be in time; 0 for several models together
	Waiting            int64           `json:"waiting"`
	Running            int64           `json:"running"`
	Window             Rates           `json:"window"`
	Counts             Counts          `json:"since_start"`
}

// Key names the model, or the class of it.
func (m *Model) Key() formats.ModelClass { return formats.ModelClass{Model: m.Model, Class: m.Class} }

// Rates count what happened in a window of time, in requests per second by the time of the arrival or the answer.
type Rates struct {
	OfferedRPS  float64  `json:"offered_rps"`
	AnsweredRPS float64  `json:"answered_rps"`
	InTimeRPS   float64  `json:"in_time_rps"`
	DroppedRPS  float64  `json:"dropped_rps"`
	Attainment  *float64 `json:"attainment"` // the share of the answered or dropped requests that was in time; null if there were none
}

// Counts count requests since the server started.
type Counts struct {
	Requests  int64 `json:"requests"`
	Completed int64 `json:"completed"`
	Late      int64 `json:"late"`
	Dropped   int64 `json:"dropped"`
}

// Attainment returns the share of the answered or dropped requests that was in time. If there were none, it returns nil.
func (c *Counts) Attainment() *float64 {
	ended := c.Completed + c.Dropped
	if ended <= 0 {
		return nil
	}
	share := float64(c.Completed-c.Late) / float64(ended)
	return &share
}

// RatesSince returns the rates from earlier counts to these, between which `elapsed` passed. If no time passed, all are 0.
func (c *Counts) RatesSince(earlier *Counts, elapsed time.Duration) Rates {
	if elapsed <= 0 {
		return Rates{}
	}
	// Counts of requests that moved to another plan go down for a moment.
	n := Counts{max(c.Requests-earlier.Requests, 0), max(c.Completed-earlier.Completed, 0), max(c.Late-earlier.Late, 0), max(c.Dropped-earlier.Dropped, 0)}
	seconds := elapsed.Seconds()
	return Rates{
		OfferedRPS: float64(n.Requests) / seconds, AnsweredRPS: float64(n.Completed) / seconds, InTimeRPS: float64(max(n.Completed-n.Late, 0)) / seconds,
		DroppedRPS: float64(n.Dropped) / seconds, Attainment: n.Attainment(),
	}
}

// Add adds other counts.
func (c *Counts) Add(other Counts) {
	c.Requests += other.Requests
	c.Completed += other.Completed
	c.Late += other.Late
	c.Dropped += other.Dropped
}

// Device is a device of the plan, or the share 1/Share of one.
type Device struct {
	Device int     `json:"device"` // its number in the plan, as in the metrics
	Kind   int     `json:"kind"`   // index into DeviceKinds
	Share  int     `json:"share"`
	Up     bool    `json:"up"`
	Busy   float64 `json:"busy"` // the share of the window of devices in which it ran batches
}

// Sample holds what happened in one interval.
type Sample struct {
	AgeS    float64 `json:"age_s"` // seconds from the end of the interval until now
	Rates   Rates   `json:"rates"`
	Waiting int64   `json:"waiting"`
	// BusyByKind has the busy share of the devices by their kind. A share 1/v of a device counts as 1/v.
	BusyByKind []float64 `json:"busy_by_kind"`
	Gauge      float64   `json:"gauge"` // the gauge of the kind's part, if it has one
}

// Event is something that happened in the server.
type Event struct {
	At    time.Time `json:"at"` // the last time, if it happened several times in a row
	Level string    `json:"level"`
	Text  string    `json:"text"`
	Times int       `json:"times"`
}

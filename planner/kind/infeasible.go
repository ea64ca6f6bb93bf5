package kind

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// InfeasibleError is returned when no plan exists. It has the reason and the nearest problem that
// has a plan.
type InfeasibleError struct {
	Model      string // empty if no single model is the cause
	Constraint string // slo, memory, devices, min_rps
	Reason     string
	Nearest    NearestFeasible
	// OtherCauses hold when Constraint no longer does. Nearest is free of them, too.
	OtherCauses []Cause
	// Alternatives are other changes, each of which alone makes the problem feasible.
	Alternatives []NearestFeasible
	Conflict     []string // limits that exclude each other, if a program was infeasible
	// CutShort says what ended the search for the nearest problem early, such as "after 10s of
	// CPU time". It is empty if nothing did.
	CutShort string
	// RefutedBySimulation says that plans were found and that none holds in simulation. Nearest
	// is then what the best of them holds.
	RefutedBySimulation bool
	// OnlyMinLoad says that only the option min-load asks for rates.
	OnlyMinLoad bool
}

// Cause is a constraint that no plan can keep.
type Cause struct {
	Model, Constraint, Reason string
}

// NearestFeasible describes a change that makes a problem feasible. Only the fields that apply are
// set, and all of them hold together.
type NearestFeasible struct {
	SLOUS       float64        `json:"slo_us,omitempty"`
	SLOs        []ModelSLO     `json:"slos,omitempty"`         // the same, if several models need another SLO
	SLOFactor   float64        `json:"slo_factor,omitempty"`   // factor on all SLOs
	LoadFactor  float64        `json:"load_factor,omitempty"`  // factor on the requested rates
	MinLoadRPS  float64        `json:"min_load_rps,omitempty"` // the load factor as a value of --min-load
	MemoryBytes int64          `json:"memory_bytes,omitempty"`
	Devices     []MissingCount `json:"more_devices,omitempty"`
	// NotSolved says that no plan was found there: at least this much is needed.
	NotSolved bool `json:"not_solved,omitempty"`
}

// ModelSLO is an SLO of one model.
type ModelSLO struct {
	Model string  `json:"model"`
	SLOUS float64 `json:"slo_us"`
}

// MissingCount is a number of devices to add.
type MissingCount struct {
	Device string `json:"device"`
	Count  int    `json:"count"`
}

// String returns in words what would have to change for a plan to exist, such as a longer SLO or more devices. The
// changes hold together and are joined by "and". If no field is set, it returns an empty string.
func (n NearestFeasible) String() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch {
	case len(n.SLOs) > 0:
		for _, m := range n.SLOs {
			add("an SLO of %s for %s", time.Duration(m.SLOUS*1000), m.Model)
		}
	case n.SLOUS > 0:
		add("an SLO of %s", time.Duration(n.SLOUS*1000))
	case n.SLOFactor > 0:
		add("SLOs of %.6g times those asked", n.SLOFactor)
	}

	// Memory and devices.
	if n.MemoryBytes > 0 {
		add("%d bytes of memory per device", n.MemoryBytes)
	}
	for _, d := range n.Devices {
		add("%d more %s", d.Count, d.Device)
	}
	switch {
	case n.MinLoadRPS > 0:
		add("--min-load %.6g", n.MinLoadRPS)
	case n.LoadFactor > 0:
		atMost := ""
		if n.NotSolved {
			atMost = "at most "
		}
		add("%s%s times the rates asked", atMost, LoadText(n.LoadFactor))
	}
	return strings.Join(parts, " and ")
}

// Error returns the reason, the nearest problem and the alternatives in one line, and the conflict in another.
func (e *InfeasibleError) Error() string {
	s := "infeasible: " + e.Reason
	for _, cause := range e.OtherCauses {
		s += "; then " + cause.Reason
	}
	if nearest := e.Nearest.String(); nearest != "" {
		label := "nearest feasible"
		if e.Nearest.NotSolved {
			label = "necessary, but perhaps not enough"
		}
		s += "; " + label + ": " + nearest
	}
	for _, alternative := range e.Alternatives {
		s += ", or " + alternative.String()
	}
	if e.CutShort != "" {
		s += "; the search for what is nearest was cut short " + e.CutShort + ": there may be something nearer"
	}
	if len(e.Conflict) > 0 {
		s += "\n  these exclude each other: " + strings.Join(e.Conflict, "; ")
	}
	return s
}

// LoadText returns a factor of the requested rates as text with 4 digits, rounded down so that it stays feasible. A
// factor just below 1 gets 8 digits, so that it does not read as 1.
func LoadText(load float64) string {
	digits := 4
	if load > 0.9999 && load < 1 {
		digits = 8
	}
	return fmt.Sprintf("%.*g", digits, RoundDown(load, digits))
}

// RoundDown returns a positive number rounded down to so many significant decimal digits. Zero, negative numbers,
// infinity and NaN are returned as they are.
func RoundDown(v float64, digits int) float64 {
	if !(v > 0) || math.IsInf(v, 0) {
		return v
	}
	text := strconv.FormatFloat(v, 'e', digits-1, 64)
	if rounded, _ := strconv.ParseFloat(text, 64); rounded <= v {
		return rounded
	}
	// The nearest number was above v: take the one below, which is the nearest to v less half a unit of the last digit.
	unit := math.Pow(10, math.Floor(math.Log10(v))-float64(digits-1))
	lower, _ := strconv.ParseFloat(strconv.FormatFloat(v-unit/2, 'e', digits-1, 64), 64)
	return lower
}

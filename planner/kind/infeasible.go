package kind

import (
	"fmt"
	"strings"
	"time"
)

// InfeasibleError says that no plan exists, why, and what the nearest thing is
// that would have one.
type InfeasibleError struct {
	Model      string // empty where no single model is the cause
	Constraint string // slo, memory, devices, min_rps
	Reason     string
	Nearest    Nearest
	Conflict   []string // limits that exclude each other, where a program was infeasible
}

// Nearest is what would be feasible. Only what applies is set.
type Nearest struct {
	SLOUS       float64        `json:"slo_us,omitempty"`
	LoadFactor  float64        `json:"load_factor,omitempty"`  // of the floors asked
	MinLoadRPS  float64        `json:"min_load_rps,omitempty"` // the same as a value of --min-load
	MemoryBytes int64          `json:"memory_bytes,omitempty"`
	Devices     []MissingCount `json:"more_devices,omitempty"`
}

// MissingCount is a number of devices to add.
type MissingCount struct {
	Device string `json:"device"`
	Count  int    `json:"count"`
}

func (n Nearest) String() string {
	switch {
	case n.SLOUS > 0:
		return fmt.Sprintf("an SLO of %s", time.Duration(n.SLOUS*1000))
	case n.MemoryBytes > 0:
		return fmt.Sprintf("%d bytes of memory per device", n.MemoryBytes)
	case len(n.Devices) > 0:
		var parts []string
		for _, d := range n.Devices {
			parts = append(parts, fmt.Sprintf("%d more %s", d.Count, d.Device))
		}
		return strings.Join(parts, " and ")
	case n.MinLoadRPS > 0:
		return fmt.Sprintf("--min-load %.6g", n.MinLoadRPS)
	case n.LoadFactor > 0:
		return Times(n.LoadFactor) + " times the rates asked"
	}
	return ""
}

func (e *InfeasibleError) Error() string {
	s := "infeasible: " + e.Reason
	if near := e.Nearest.String(); near != "" {
		s += "; nearest feasible: " + near
	}
	if len(e.Conflict) > 0 {
		s += "\n  these exclude each other: " + strings.Join(e.Conflict, "; ")
	}
	return s
}

// Times is a part of the rates asked as people read it: one just below 1 is not
// written as 1.
func Times(load float64) string {
	if load > 0.9999 && load < 1 {
		return fmt.Sprintf("%.8g", load)
	}
	return fmt.Sprintf("%.4g", load)
}

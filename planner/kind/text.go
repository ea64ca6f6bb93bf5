package kind

import (
	"fmt"
	"math"
	"strings"

	"inferplan/formats"
	"inferplan/planner/lists"
)

// DeviceNames returns the device kinds of pools as text.
func DeviceNames(pools []formats.Pool) string {
	names := lists.Map(len(pools), func(i int) string { return pools[i].Device })
	return strings.Join(names, ", ")
}

// FormatNumber writes a number with as many digits as people read.
func FormatNumber(v float64) string {
	if a := math.Abs(v); a >= 1000 {
		return fmt.Sprintf("%.0f", v)
	} else if a >= 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// FormatPercent writes a share as a percentage with as many digits as people read.
func FormatPercent(v float64) string {
	switch p := 100 * v; {
	case p == 0:
		return "0 %"
	case p < 0.01:
		return fmt.Sprintf("%.1g %%", p)
	case p < 1:
		return fmt.Sprintf("%.2f %%", p)
	default:
		return fmt.Sprintf("%.1f %%", p)
	}
}

// UnknownCuts collects the cuts that are impossible because the profile does not know what crosses
// there.
type UnknownCuts struct{ models []string }

// Add notes the blocks of a model after which it cannot be cut, because the size of what crosses there is unknown.
// numBlocks is the model's number of blocks; after the last there is no cut.
func (u *UnknownCuts) Add(model string, uncutBlocks []int, numBlocks int) {
	switch {
	case len(uncutBlocks) == 0:
	case len(uncutBlocks) == numBlocks-1:
		u.models = append(u.models, model+" nowhere")
	default:
		u.models = append(u.models, fmt.Sprintf("%s not after %s of its %d blocks", model, numberRanges(uncutBlocks), numBlocks))
	}
}

// Warn adds a warning with all models, in one line.
func (u *UnknownCuts) Warn(r *SolveRun) {
	if len(u.models) > 0 {
		r.Warn("models are not cut where the profile has no size of what crosses: %s", strings.Join(u.models, ", "))
	}
}

// numberRanges returns a text that lists rising numbers. Three or more consecutive ones are written as a range: the
// list 0, 1, 2, 3, 7 gives "0 to 3, 7".
func numberRanges(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		// Extend the run list[i] to list[j] of consecutive numbers. One or two numbers are written singly.
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if j-i < 2 {
			j = i
			parts = append(parts, fmt.Sprint(list[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d to %d", list[i], list[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

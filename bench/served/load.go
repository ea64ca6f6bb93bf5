package served

import (
	"os"
	"strings"
)

// LoadAverage returns how busy the machine was in the last minute; "unknown" where the system does not say it.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	average, _, _ := strings.Cut(string(text), " ")
	return average
}

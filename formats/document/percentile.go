package document

import (
	"fmt"
	"strconv"
	"strings"
)

// ParsePercentile reads "p99" or "p99.9" as 0.99 or 0.999.
func ParsePercentile(text string) (float64, error) {
	number, ok := strings.CutPrefix(text, "p")
	if _, err := rational(number); ok && err == nil {
		if v, err := strconv.ParseFloat(number, 64); err == nil && v > 0 && v < 100 {
			return v / 100, nil
		}
	}
	return 0, fmt.Errorf("%s is not a percentile between p0 and p100, such as p99", Quote(text))
}

// ParseShare reads a share as a number or in per cent: 0.8 or 80%. It checks no bounds.
func ParseShare(text string) (float64, error) {
	digits, isPercent := strings.CutSuffix(text, "%")
	digits = strings.TrimRight(digits, " ")
	if isPercent && !strings.ContainsAny(digits, "eE") {
		digits += "e-2" // which rounds once, as the share itself would be
	}
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is not a share such as 0.8 or 80%%", Quote(text))
	}
	if isPercent && strings.ContainsAny(text, "eE") {
		v /= 100
	}
	return v, nil
}

// ShareAt returns the share of requests that have to be in time by a percentile. Without a percentile it is .99.
func ShareAt(percentile string) float64 {
	share, err := ParsePercentile(percentile)
	if err != nil {
		return 0.99
	}
	return share
}

// PercentileName is the inverse of ParsePercentile.
func PercentileName(share float64) string {
	return "p" + strconv.FormatFloat(100*share, 'g', 8, 64)
}

// IsPercentile reports whether a text is a percentile such as p99.
func IsPercentile(text string) bool {
	_, err := ParsePercentile(text)
	return err == nil
}

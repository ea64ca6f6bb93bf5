package document

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// Bytes is a size: an integer count of bytes, or text with a unit ("24GiB",
// "512MB").
type Bytes int64

// byteUnits lists the units of sizes, largest first, binary before decimal.
var byteUnits = []unit{
	{"PiB", 1 << 50}, {"PB", 1e15}, {"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9},
	{"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3},
}

// ParseBytes parses a size such as 24GiB, 1.5GB or an integer count of bytes, exactly.
func ParseBytes(text string) (Bytes, error) {
	fail := func(err error) (Bytes, error) {
		return 0, fmt.Errorf("%s is not a size such as 24GiB, 512MB or a count of bytes: %w", Quote(text), err)
	}
	t := strings.TrimSpace(text)
	if strings.HasPrefix(t, "-") {
		return fail(errNegative)
	}
	number, unit := splitUnit(t)
	r, err := rational(number)
	if err != nil {
		return fail(err)
	}

	// Find the unit.
	scale := int64(1)
	switch unit = strings.TrimSpace(unit); unit {
	case "", "B":
	case "KB": // a frequent spelling of kB
		scale = 1000
	default:
		scale = scaleOf(byteUnits, unit)
	}
	if scale == 0 {
		return fail(fmt.Errorf("%w %s", errBadUnit, Quote(unit)))
	}
	n, err := integer(r.Mul(r, new(big.Rat).SetInt64(scale)), errFractional)
	if err != nil {
		return fail(err)
	}
	return Bytes(n), nil
}

// minBareMemory is the smallest memory that may be written without a unit: 24 means 24GiB to a person, and 24576 what a
// GPU's tools print in MiB.
const minBareMemory = 1 << 20

var errNoUnitOfMemory = errors.New("a number alone counts bytes")

// ParseMemory is ParseBytes for the memory of a device or process. It refuses a small number without a unit.
func ParseMemory(text string) (Bytes, error) {
	b, err := ParseBytes(text)
	if err != nil {
		return 0, err
	}
	if isNumber(text) && b > 0 && b < minBareMemory {
		return 0, fmt.Errorf("%s is not a size of memory such as 24GiB or 512MB: %w", Quote(text), errNoUnitOfMemory)
	}
	return b, nil
}

// memoryText returns a size as ParseMemory reads it.
func memoryText(b Bytes) string {
	if t := b.String(); !isNumber(t) || b == 0 || b >= minBareMemory {
		return t
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// String returns the shortest exact text of a size: 24GiB, 512MB, or a count of bytes such as 1234567.
func (b Bytes) String() string {
	shortest := strconv.FormatInt(int64(b), 10)
	if b <= 0 {
		return shortest
	}
	for _, u := range byteUnits {
		if int64(b)%u.scale == 0 {
			if t := strconv.FormatInt(int64(b)/u.scale, 10) + u.name; len(t) < len(shortest) {
				shortest = t
			}
		}
	}
	return shortest
}

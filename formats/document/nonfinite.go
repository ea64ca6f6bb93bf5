package document

import (
	"strconv"
	"strings"
)

// nonFiniteHint is the hint for a number that is NaN or infinite.
const nonFiniteHint = "leave the field out where there is no value"

// refuseNonFinite panics with an error that helps if the text at the current position is NaN or an infinity, as
// some programs write them. JSON and documents have no such numbers.
func (p *jsonParser) refuseNonFinite() {
	word := p.s[p.i:min(p.i+len("-Infinity"), len(p.s))]
	if i := strings.IndexFunc(word[min(1, len(word)):], func(r rune) bool { return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') }); i >= 0 {
		word = word[:i+1]
	}
	switch strings.ToLower(strings.TrimLeft(word, "+-")) {
	case "nan", "inf", "infinity":
		panic(p.src.fail(int64(p.i), pathAt(p.s, p.i), word, "a finite number", "NaN and infinity are no JSON numbers: "+nonFiniteHint))
	}
}

// pathAt returns the path of the field whose value begins at a position of a JSON text that is well formed up to
// there. It is for errors.
func pathAt(s string, position int) string {
	type container struct {
		object bool
		name   string // the name of the current field
		item   int
	}

	// Follow the text to the place with a stack of the open objects and lists.
	var open []container
	for i := 0; i < position; i++ {
		in := len(open) - 1
		switch s[i] {
		case '{', '[':
			open = append(open, container{object: s[i] == '{'})
		case '}', ']':
			open = open[:in]
		case ',':
			open[in].item++
		case '"':
			start := i + 1
			for i++; s[i] != '"'; i++ {
				if s[i] == '\\' {
					i++
				}
			}
			if in >= 0 && open[in].object && strings.HasPrefix(strings.TrimLeft(s[i+1:], " \t\r\n"), ":") {
				open[in].name = s[start:i]
			}
		}
	}

	// Write the stack as a path.
	var path strings.Builder
	for _, c := range open {
		switch {
		case !c.object:
			path.WriteString("[" + strconv.Itoa(c.item) + "]")
		case path.Len() > 0:
			path.WriteString("." + c.name)
		default:
			path.WriteString(c.name)
		}
	}
	return path.String()
}

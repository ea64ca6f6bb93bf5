package milp

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// WriteLP writes the model as text in LP format, for people and for other solvers. The same model gives the same
// bytes. Names keep letters, digits, '_' and '.'; a name that had to change, or that stands twice, gets its index as a
// suffix, and a comment at the top gives the name it had. A row with two different finite limits becomes two rows.
func (m *Model) WriteLP(w io.Writer) error {
	b := bufio.NewWriter(w)
	vars, varNotes := lpNames("x", len(m.vars), func(i int) string { return m.VarName(Var(i)) })
	rows, rowNotes := lpNames("r", len(m.rows), func(i int) string { return m.RowName(Row(i)) })

	fmt.Fprintf(b, "\\ %s\n", oneLine(m.String()))
	for _, n := range rowNotes {
		fmt.Fprintf(b, "\\ row %s\n", n)
	}
	for _, n := range varNotes {
		fmt.Fprintf(b, "\\ variable %s\n", n)
	}

	b.WriteString(m.sense.String() + "\n obj:")
	e := expr{w: b, vars: vars}
	for j := range m.vars {
		e.term(m.vars[j].obj, j)
	}
	if m.offset != 0 {
		e.constant(m.offset)
	}
	e.end()

	b.WriteString("\nsubject to\n")
	byRow := m.rowEntries()
	for i := range m.rows {
		r := &m.rows[i]
		line := func(suffix, op string, rhs float64) {
			fmt.Fprintf(b, " %s%s:", rows[i], suffix)
			e := expr{w: b, vars: vars}
			for _, t := range byRow[i] {
				e.term(t.Coef, int(t.Var))
			}
			e.end()
			fmt.Fprintf(b, " %s %s\n", op, number(rhs))
		}
		lo, hi := !math.IsInf(r.lo, 0), !math.IsInf(r.hi, 0)
		switch {
		case lo && hi && r.lo == r.hi:
			line("", "=", r.lo)
		case lo && hi:
			line("_lo", ">=", r.lo)
			line("_hi", "<=", r.hi)
		case lo:
			line("", ">=", r.lo)
		case hi:
			line("", "<=", r.hi)
		default:
			fmt.Fprintf(b, "\\ row %s has no limit\n", rows[i])
		}
	}

	b.WriteString("bounds\n")
	for j := range m.vars {
		v := &m.vars[j]
		switch lo, hi := math.IsInf(v.lo, 0), math.IsInf(v.hi, 0); {
		case lo && hi:
			fmt.Fprintf(b, " %s free\n", vars[j])
		case v.lo == v.hi:
			fmt.Fprintf(b, " %s = %s\n", vars[j], number(v.lo))
		case lo:
			fmt.Fprintf(b, " -inf <= %s <= %s\n", vars[j], number(v.hi))
		case hi && v.lo == 0 && !v.integer:
		case hi:
			fmt.Fprintf(b, " %s >= %s\n", vars[j], number(v.lo))
		default:
			fmt.Fprintf(b, " %s <= %s <= %s\n", number(v.lo), vars[j], number(v.hi))
		}
	}
	if m.NumIntegers() > 0 {
		b.WriteString("general\n")
		for j := range m.vars {
			if m.vars[j].integer {
				fmt.Fprintf(b, " %s\n", vars[j])
			}
		}
	}
	b.WriteString("end\n")
	return b.Flush()
}

// rowEntries returns the merged coefficients of every row, variables ascending.
func (m *Model) rowEntries() [][]Term {
	out := make([][]Term, len(m.rows))
	c := m.Columns()
	for j := range m.vars {
		for k := c.Start[j]; k < c.Start[j+1]; k++ {
			out[c.Index[k]] = append(out[c.Index[k]], Term{Var: Var(j), Coef: c.Value[k]})
		}
	}
	return out
}

// expr writes a linear expression, broken into lines.
type expr struct {
	w    *bufio.Writer
	vars []string
	n    int
}

func (e *expr) term(c float64, j int) {
	if c == 0 {
		return
	}
	e.sign(c)
	if a := math.Abs(c); a != 1 {
		e.w.WriteString(number(a) + " ")
	}
	e.w.WriteString(e.vars[j])
}

func (e *expr) constant(c float64) {
	e.sign(c)
	e.w.WriteString(number(math.Abs(c)))
}

func (e *expr) sign(c float64) {
	if e.n > 0 && e.n%8 == 0 {
		e.w.WriteString("\n  ")
	}
	switch {
	case c < 0:
		e.w.WriteString(" - ")
	case e.n > 0:
		e.w.WriteString(" + ")
	default:
		e.w.WriteString(" ")
	}
	e.n++
}

// end writes a zero where nothing was written, as LP format wants an expression.
func (e *expr) end() {
	if e.n == 0 && len(e.vars) > 0 {
		e.w.WriteString(" 0 " + e.vars[0])
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }

// lpNames makes n distinct names that LP format allows, and notes of those that had to change.
func lpNames(prefix string, n int, name func(int) string) (out, notes []string) {
	out = make([]string, n)
	seen := make(map[string]bool, n)
	for i := range out {
		own := name(i)
		s := strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '.':
				return r
			}
			return '_'
		}, own)
		// A leading digit, dot or e/E would read as a number.
		if s == "" || strings.ContainsRune("0123456789.eE", rune(s[0])) || reserved[strings.ToLower(s)] {
			s = prefix + "_" + s
		}
		if s != own || seen[s] {
			s += "_" + prefix + strconv.Itoa(i)
			notes = append(notes, s+": "+oneLine(own))
		}
		for seen[s] {
			s += "_"
		}
		seen[s] = true
		out[i] = s
	}
	return out, notes
}

// reserved are the section words of LP format.
var reserved = map[string]bool{
	"free": true, "inf": true, "infinity": true, "st": true, "s.t.": true, "bounds": true, "bound": true, "general": true, "generals": true,
	"gen": true, "bin": true, "binary": true, "binaries": true, "int": true, "integer": true, "integers": true, "end": true, "min": true, "max": true,
	"minimize": true, "maximize": true, "minimise": true, "maximise": true, "subject": true, "semi": true, "sos": true, "sos1": true, "sos2": true,
}

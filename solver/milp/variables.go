package milp

import "strconv"

// Var is a variable of one model: its index, counted from 0 in the order of adding.
type Var int

// variables holds the variables of a model.
type variables struct{ vars []variable }

// variable is a variable with its bounds (-Inf and Inf without one) and its objective coefficient.
type variable struct {
	name        string
	lo, hi, obj float64
	integer     bool
}

// AddVar adds a continuous variable. An empty name becomes "x" and its index.
func (l *variables) AddVar(name string, lo, hi, obj float64) Var {
	l.vars = append(l.vars, variable{name: name, lo: lo, hi: hi, obj: obj})
	return Var(len(l.vars) - 1)
}

// AddInt adds an integer variable.
func (l *variables) AddInt(name string, lo, hi, obj float64) Var {
	v := l.AddVar(name, lo, hi, obj)
	l.vars[v].integer = true
	return v
}

// AddBool adds a variable that is 0 or 1.
func (l *variables) AddBool(name string, obj float64) Var { return l.AddInt(name, 0, 1, obj) }

// SetObj changes a variable's objective coefficient.
func (l *variables) SetObj(v Var, c float64) { l.vars[v].obj = c }

// SetBounds changes a variable's bounds.
func (l *variables) SetBounds(v Var, lo, hi float64) { l.vars[v].lo, l.vars[v].hi = lo, hi }

// SetInteger makes a variable integer or continuous.
func (l *variables) SetInteger(v Var, integer bool) { l.vars[v].integer = integer }

// NumVars returns the number of variables.
func (l *variables) NumVars() int { return len(l.vars) }

// NumIntegers returns the number of integer variables.
func (l *variables) NumIntegers() int {
	count := 0
	for i := range l.vars {
		if l.vars[i].integer {
			count++
		}
	}
	return count
}

// VarName returns the variable's name.
func (l *variables) VarName(v Var) string {
	if int(v) >= 0 && int(v) < len(l.vars) && l.vars[v].name != "" {
		return l.vars[v].name
	}
	return "x" + strconv.Itoa(int(v))
}

// Bounds returns the variable's bounds.
func (l *variables) Bounds(v Var) (lo, hi float64) { return l.vars[v].lo, l.vars[v].hi }

// Obj returns the variable's objective coefficient.
func (l *variables) Obj(v Var) float64 { return l.vars[v].obj }

// IsInteger reports whether the variable is integer.
func (l *variables) IsInteger(v Var) bool { return l.vars[v].integer }

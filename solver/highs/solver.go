package highs

import "errors"

// Solver solves milp models with HiGHS. The zero value is ready, and may be used by several goroutines at once.
type Solver struct{}

// ErrUnavailable is returned if the program was built without cgo, and so without HiGHS.
var ErrUnavailable = errors.New("highs: this binary was built without cgo and has no solver; build it with `make build`")

// Version returns the solver's name and version, as a plan file states it.
func (Solver) Version() string { return Version() }

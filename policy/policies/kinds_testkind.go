//go:build testkind

package policies

import (
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/echo"
)

// init adds the plan kind echo, which only tests have, to the known kinds: how its plans are compiled, and its
// policy.
func init() {
	planKinds = append(planKinds, planKind{
		name: formats.PlanEcho, compile: echo.Compile, newControl: echo.Control, makers: []namedPolicy{{echo.Name, echo.New}},
		ownsTables: func(t *policy.Tables) bool { return echo.TablesOf(t) != nil },
	})
}

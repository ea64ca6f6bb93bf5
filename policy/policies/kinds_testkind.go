//go:build testkind

package policies

import (
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/echo"
)

func init() {
	planKinds = append(planKinds, planKind{
		name: formats.PlanEcho, compile: echo.Compile, newControl: echo.Control, makers: []namedPolicy{{echo.Name, echo.New}},
		ownsTables: func(t *policy.Tables) bool { return echo.TablesOf(t) != nil },
	})
}

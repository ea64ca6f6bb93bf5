//go:build testkind

package policies

import (
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/echo"
)

func init() {
	kinds = append(kinds, kind{
		name: formats.PlanEcho, compile: echo.Compile, control: echo.Control, makers: []named{{echo.Name, echo.New}},
		owns: func(t *policy.Tables) bool { return echo.Of(t) != nil },
	})
}

//go:build testkind

package planner

import "inferplan/planner/echo"

func init() { methods = append(methods, &echo.Method) }

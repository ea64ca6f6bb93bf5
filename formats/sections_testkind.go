//go:build testkind

package formats

func init() { planKinds, workloadParts = append(planKinds, echoKind), append(workloadParts, echoPart) }

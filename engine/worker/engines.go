package worker

import "maps"

var engines = map[string]Opener{"replay": openReplay}

// Engines lists the engines of this build by name. Engines that need a
// library are added by files with a build tag.
func Engines() map[string]Opener { return maps.Clone(engines) }

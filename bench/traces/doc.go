// Package traces reads recorded numbers of requests per minute or second from the folder traces/ of the data of others, for instruments
// that play them. Azure has a column per function and a row per minute of nine days; WorldCup98 has minutes, Twitter seconds.
//
//	traces.go   the recordings, Read and the two ways of scaling a series
package traces

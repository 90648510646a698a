// Package docs holds no code: the guides are for users. The tests here hold them
// to the code, so that what a guide promises is what the product does.
package docs

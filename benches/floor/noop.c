/* The least that a program can do: it says that it ran, and ends. Linked statically with the system's C
 * library, it is what the floor is defined with. */
#include <unistd.h>

int main(void) { return write(1, "hi\n", 3) != 3; }
